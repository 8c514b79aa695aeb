//! Engine and model, side by side.
