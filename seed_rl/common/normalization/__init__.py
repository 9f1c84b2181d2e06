"""Running statistics, and what is normalized with them: observations, returns, value targets."""
