"""Any environment that is registered with Gymnasium."""
