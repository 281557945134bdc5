"""The test kit, public: text cases and hypothesis strategies."""
