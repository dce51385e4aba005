"""What a cluster of several query nodes gains and costs, on one machine."""
