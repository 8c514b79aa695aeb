//! The contract: test cases that every store must pass.
//!
//! A [`Case`] checks one guarantee of [`Store`](posthaste_store::Store). It gets a [`Harness`], which opens the
//! store under test: empty the first time, and afterwards as it was left. [`every_case`] lists all cases once;
//! [`contract_tests`] makes a test of each. [`comparison`] applies random operations to the store and the model
//! and compares them.
//!
//! [`every_case`]: crate::every_case
//! [`contract_tests`]: crate::contract_tests

pub mod comparison;
mod given;
mod harness;

mod accepting;
mod alerting;
mod allowing;
mod audit;
mod buckets;
mod burying;
mod endpoints;
mod fetching;
mod figures;
mod keeping;
mod keys;
mod lifetime;
mod listing;
mod passes;
mod recording;
mod replaying;
mod retrying;
mod sweeping;
mod telling;
mod tenants;
mod tidying;
mod volume;
mod whose;

pub use harness::{Harness, ModelHarness, Recorder};

use std::pin::Pin;

/// The future of a running case.
pub type Telling<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A guarantee, as a test that panics if it is violated.
pub struct Case {
    /// The topic: the module of the case.
    pub topic: &'static str,
    /// The name: the guarantee.
    pub name: &'static str,
    /// Runs the case. Panics if the guarantee is violated.
    pub run: for<'a> fn(&'a dyn Harness) -> Telling<'a>,
}

/// Lists every case once and passes the list to another macro.
#[macro_export]
macro_rules! every_case {
    ($then:ident! { $($before:tt)* }) => {
        $then! { $($before)*
            tenants {
                a_tenant_is_created_once_and_read_back
                an_outdated_change_of_a_tenant_is_refused
                tenants_are_listed_newest_first
                a_deleted_tenant_takes_its_keys_and_endpoints_with_it
                a_later_tenant_of_the_same_id_sees_nothing
            }
            keys {
                a_key_is_found_by_its_hash_until_it_is_revoked
                keys_need_their_tenant_and_are_unique
                keys_are_listed_by_whose_they_are
            }
            passes {
                a_pass_is_found_by_its_hash_until_it_ends
                passes_need_their_tenant_and_are_unique
                passes_are_listed_by_whose_they_are
                passes_end_with_their_key_and_their_tenant
                passes_that_are_over_are_removed_in_small_steps
            }
            audit {
                an_act_is_written_down_and_completed_once
                long_texts_are_cut
                entries_are_found_by_tenant_and_time
                a_later_tenant_sees_no_entry_of_an_earlier
                entries_are_kept_for_long_and_removed_in_small_steps
            }
            whose {
                a_name_alone_tells_whose_it_is
            }
            endpoints {
                an_endpoint_comes_back_as_it_went_in
                a_tenant_has_no_more_endpoints_than_it_may
                a_change_keeps_tenant_and_birth_and_counts
                a_standing_is_written_with_newer_health_only
                what_is_deleted_stays_deleted
                endpoints_are_listed_without_deleted_ones
            }
            accepting {
                events_go_where_they_are_wanted
                paused_endpoints_get_events_and_disabled_ones_do_not
                a_change_of_patterns_holds_for_the_next_event
                a_test_goes_to_its_endpoint_only
                an_event_comes_back_byte_for_byte
                a_trace_stays_with_its_event
                nothing_is_accepted_for_a_tenant_that_is_not_there
                a_batch_is_all_or_nothing
                the_same_key_makes_one_event
                the_same_key_at_the_same_time_makes_one_event
                what_is_to_be_delivered_later_waits
                a_delivery_is_given_up_by_the_nearest_policy
                what_was_accepted_was_handed_over_first_and_in_order
                writes_take_effect_in_the_order_of_the_calls
            }
            allowing {
                so_many_a_second_and_no_more
                so_many_a_month_and_no_more
                what_never_fits_is_told_apart
                what_is_found_again_costs_nothing
                many_at_once_get_no_more_than_is_allowed
                what_was_used_is_known_for_everybody_and_for_long
                a_later_tenant_has_used_nothing
            }
            fetching {
                what_is_due_comes_earliest_first
                of_the_rest_the_earliest_is_named
                of_an_ordering_key_only_the_oldest_comes
                keys_do_not_matter_where_there_is_no_order
                a_replayed_delivery_takes_its_old_place_in_the_order
                unfinished_work_names_every_endpoint_with_its_earliest
            }
            recording {
                an_attempt_is_kept_with_its_detail
                attempts_of_all_rounds_stay_in_order
                everything_known_of_a_delivery_comes_back
                what_is_stale_changes_nothing
                what_has_ended_stays_ended
                older_health_does_not_replace_newer
                a_disabling_says_why_and_does_not_undo_a_deletion
                news_become_notices_in_order
                what_waits_can_be_cancelled_once
            }
            retrying {
                one_that_waits_is_hastened
                one_that_has_ended_begins_all_over
                a_disabled_or_deleted_endpoint_is_sent_nothing
                somebody_elses_delivery_does_not_exist
            }
            sweeping {
                a_sweep_ends_a_piece_at_a_time_and_spares_what_is_in_flight
                a_sweep_says_why
            }
            listing {
                pages_hold_every_delivery_once_newest_first
                every_filter_and_every_pair_of_them_finds_what_matches
                pages_stay_whole_while_more_comes_in
                events_are_found_by_type_and_time
                held_follows_from_the_endpoint
                tenants_see_only_their_own
            }
            burying {
                dead_letters_are_grouped_by_endpoint_and_cause
                pages_of_groups_are_whole_whatever_their_length
                a_group_is_counted_only_so_far
                a_group_is_replayed_whole_and_nothing_besides
                dead_letters_belong_to_their_tenant
                endpoints_in_trouble_are_named_those_paused_last
            }
            replaying {
                what_failed_is_sent_again_once
                only_what_matches_is_sent_again
                one_that_fails_again_is_not_sent_twice
                what_somebody_sent_again_since_is_passed_over
                what_failed_after_the_beginning_is_not_sent
                what_was_missed_is_sent
                a_test_of_another_endpoint_was_not_missed
                endpoints_that_take_no_part_are_passed_over
                a_replay_survives_a_restart
                a_cancelled_replay_stops
                replays_belong_to_their_tenant
            }
            telling {
                failures_become_one_notice_for_each_endpoint
                what_swept_a_deletion_is_no_news
                a_replayed_delivery_that_fails_again_is_counted_again
                notices_are_told_once_and_let_go
                an_act_is_its_own_whom_its_notice_is_about
                at_most_so_many_notices_wait
                what_waits_to_be_told_is_known_by_its_age
                what_is_stored_takes_room
                lines_gather_in_letters_until_they_are_due
                a_claimed_letter_is_nobody_elses_for_a_while
                what_came_while_a_letter_was_sent_goes_with_the_next
                a_letter_is_tried_again_or_dropped
                a_clock_that_is_put_back_keeps_nobody_in_the_dark
                a_long_letter_counts_what_it_leaves_out
            }
            figures {
                counts_are_what_a_recount_says
                those_retrying_for_long_are_counted
                notices_are_read_from_where_one_stopped
            }
            buckets {
                what_happened_is_added_up_and_is_there_after_a_restart
                what_was_added_under_a_number_is_not_added_again
                many_things_happen_at_once
                scopes_are_apart
                a_later_tenant_sees_nothing_of_what_happened_before
                old_buckets_go_in_small_steps
                the_worst_come_first
            }
            alerting {
                an_alert_is_raised_once_and_resolved_once
                alerts_are_about_what_is_there
                alerts_are_found_by_all_that_is_known_of_them
                a_later_tenant_sees_no_alert_of_an_earlier
                resolved_alerts_are_kept_for_long_and_removed_in_small_steps
            }
            tidying {
                what_is_unfinished_stays
                what_ended_long_ago_goes_with_all_its_rows
                a_tenant_may_keep_longer_or_shorter
                a_removed_event_frees_its_key
                steps_go_round
                replays_that_ended_long_ago_go
            }
            keeping {
                each_goes_at_its_own_time
                what_is_unfinished_stays_complete
                what_nobody_wanted_is_emptied_too
                what_is_sent_again_keeps_what_it_needs
                attempts_go_on_where_they_were
                what_is_gone_cannot_be_sent_again
                a_key_outlives_what_it_stood_for
                a_tenants_own_time_comes_before_its_plans
                a_change_of_mind_counts_at_once
            }
            lifetime {
                a_closed_store_says_so
                everything_is_there_after_a_restart
                ids_grow_whatever_the_clock_does
                a_probe_writes
            }
            volume {
                long_lists_are_whole
                a_long_queue_behind_one_key_hides_nobody
                a_long_replay_is_whole
            }
        }
    };
}

macro_rules! table {
    ($($topic:ident { $($case:ident)* })*) => {
        /// Every case.
        pub static CASES: &[Case] = &[$($(Case {
            topic: stringify!($topic),
            name: stringify!($case),
            run: |harness| Box::pin($topic::$case(harness)),
        },)*)*];
    };
}
every_case!(table! {});

/// Makes a test of every case for one store: `contract_tests!(model, ModelHarness::default())`. The expression
/// is evaluated for each test.
#[macro_export]
macro_rules! contract_tests {
    ($engine:ident, $harness:expr) => {
        mod $engine {
            #[allow(unused_imports)]
            use super::*;
            use $crate::contract_tests_of;
            $crate::every_case!(contract_tests_of! { $harness; });
        }
    };
}

/// Used by [`contract_tests`](crate::contract_tests).
#[macro_export]
macro_rules! contract_tests_of {
    ($harness:expr; $($topic:ident { $($case:ident)* })*) => {$(
        mod $topic {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::contract::run(stringify!($topic), stringify!($case), &$harness);
                }
            )*
        }
    )*};
}

/// Runs one case.
///
/// # Panics
/// If the guarantee is violated, or if there is no such case.
pub fn run(topic: &str, name: &str, harness: &dyn Harness) {
    let case = CASES
        .iter()
        .find(|case| case.topic == topic && case.name == name)
        .expect("the case is listed");
    block_on((case.run)(harness));
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}
