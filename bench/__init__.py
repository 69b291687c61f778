"""Speed, as ratios against peers measured in the same run; never a test."""
