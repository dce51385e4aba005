"""Vectors of texts from providers: what a TextEmbedding function computes (`elanus.core.embedding`).

The thread of a client's request calls the provider, never an event loop: for the rows of a write before they
enter a queue, for the texts of a search before query nodes are asked.
"""

from elanus.proxy.embedding.embedder import Embedder, EmbeddingPolicy, ProviderAccess

__all__ = ["Embedder", "EmbeddingPolicy", "ProviderAccess"]
