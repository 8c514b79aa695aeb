//! Tests of the kit through its public interface.

mod fixture;
mod postgres;
mod servers;
mod signatures;
mod sqlite;
