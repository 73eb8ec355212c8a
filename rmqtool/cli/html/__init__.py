"""The page that ``report html`` writes."""
