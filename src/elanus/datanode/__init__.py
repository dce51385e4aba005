"""The data node: owns vchannels, follows their ticks, and turns log ranges into binlogs by Spark jobs."""
