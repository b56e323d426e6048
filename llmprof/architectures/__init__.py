"""Model families as data: configuration and file headers to ModelConfig and WeightManifest."""
