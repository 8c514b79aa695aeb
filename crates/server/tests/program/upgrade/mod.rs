//! Upgrades from 0.1.0, the first released version.
//!
//! [`rolling`] runs the program of 0.1.0 beside this one, on one database and under load, while nodes are replaced one by
//! one, in both directions. It needs that program, so `scripts/upgrade` runs it. [`stored_by_0_1_0`] opens a store that
//! 0.1.0 has written; the files are in the folder `stored`.

mod rolling;
mod stored_by_0_1_0;
