"""The messages of rg.proto. Generated from it by ``make protos``: not to be edited."""

from elanus.proxy.wire.protos import common_pb2 as _common_pb2
from elanus.proxy.wire.protos.pool import add_file

globals().update(add_file(b'\n\x08rg.proto\x12\x0fmilvus.proto.rg\x1a\x0ccommon.proto"&\n\x12ResourceGroupLimit\x12\x10\n\x08node_num\x18\x01 \x01(\x05"/\n\x15ResourceGroupTransfer\x12\x16\n\x0eresource_group\x18\x01 \x01(\t"Q\n\x17ResourceGroupNodeFilter\x126\n\x0bnode_labels\x18\x01 \x03(\x0b2!.milvus.proto.common.KeyValuePair"\xbc\x02\n\x13ResourceGroupConfig\x125\n\x08requests\x18\x01 \x01(\x0b2#.milvus.proto.rg.ResourceGroupLimit\x123\n\x06limits\x18\x02 \x01(\x0b2#.milvus.proto.rg.ResourceGroupLimit\x12=\n\rtransfer_from\x18\x03 \x03(\x0b2&.milvus.proto.rg.ResourceGroupTransfer\x12;\n\x0btransfer_to\x18\x04 \x03(\x0b2&.milvus.proto.rg.ResourceGroupTransfer\x12=\n\x0bnode_filter\x18\x05 \x01(\x0b2(.milvus.proto.rg.ResourceGroupNodeFilterBp\n\x0eio.milvus.grpcB\x12ResourceGroupProtoP\x01Z0github.com/milvus-io/milvus-proto/go-api/v3/rgpb\xa0\x01\x01\xaa\x02\x12Milvus.Client.Grpcb\x06proto3'))
