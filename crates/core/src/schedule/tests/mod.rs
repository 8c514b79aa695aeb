//! Tests of the cron parser, of the words, of zones and of the planner.

mod cron;
mod planning;
mod random_plans;
