//! Which destinations may be called, attacked from outside: with a second reader of every spelling, with
//! every vector written in other ways, and with whatever was ever found interesting.

mod corpus;
mod mutations;
mod second;
mod spellings;
mod verdicts;
