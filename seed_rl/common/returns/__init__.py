"""Value targets and advantages: pure functions of rewards, discounts and values."""
