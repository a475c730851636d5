"""What a reply commits to, read exactly and in linear time. Pure: nothing here runs or trusts what a model wrote."""
