"""Extraction of committed answers from replies, exact and in linear time. Pure: never runs or trusts model output."""
