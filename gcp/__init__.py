"""Training on Google Cloud: custom jobs of Vertex AI. Standard library only."""
