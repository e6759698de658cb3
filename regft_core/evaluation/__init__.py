"""From logits to metrics, warnings and prediction rows; only ``predict`` needs torch."""
