//! The contract: test cases that every store must pass.
//!
//! A [`Case`] checks one guarantee of [`Store`](posthaste_store::Store). It gets a [`Harness`], which opens the
//! store under test: empty the first time, and afterwards as it was left. [`every_case`] lists all cases once;
//! [`contract_tests`] makes a test of each. [`comparison`] applies random operations to the store and the model
//! and compares them.
//!
//! [`every_case`]: crate::every_case
//! [`contract_tests`]: crate::contract_tests

mod accept;
mod alerts;
mod audit;
pub mod comparison;
mod counted_stats;
mod counts;
mod dead_letters;
mod endpoints;
mod fetch;
mod fixture;
mod harness;
mod keys;
mod large_data;
mod lists;
mod manual_retries;
mod missed_events;
mod notifications;
mod one_off_requests;
mod owner_emails;
mod quotas;
mod records;
mod reopening;
mod replays;
mod retention;
mod retention_periods;
mod schedule_bounds;
mod schedule_decisions;
mod schedules;
mod sessions;
mod stats_buckets;
mod sweeps;
mod tenant_lookup;
mod tenants;

pub use harness::{Harness, ModelHarness, Recorder};

use std::pin::Pin;

/// The future of a running case.
pub type CaseFuture<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A guarantee, as a test that panics if it is violated.
pub struct Case {
    /// The topic: the module of the case.
    pub topic: &'static str,
    /// The name: the guarantee.
    pub name: &'static str,
    /// Runs the case. Panics if the guarantee is violated.
    pub run: for<'a> fn(&'a dyn Harness) -> CaseFuture<'a>,
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
                a_new_tenant_with_a_reused_id_sees_nothing
            }
            keys {
                a_key_is_found_by_its_hash_until_it_is_revoked
                keys_need_their_tenant_and_are_unique
                keys_are_listed_by_owner
            }
            sessions {
                a_session_is_found_by_its_hash_until_it_ends
                sessions_need_their_tenant_and_are_unique
                sessions_are_listed_by_holder
                sessions_end_with_their_key_and_their_tenant
                expired_sessions_are_removed_in_small_steps
            }
            audit {
                an_audit_entry_is_written_and_completed_once
                long_texts_are_truncated
                entries_are_found_by_tenant_and_time
                a_new_tenant_with_a_reused_id_sees_no_earlier_entry
                old_entries_are_removed_in_small_steps
            }
            owner_emails {
                a_token_confirms_the_address_of_its_tenant_once
                a_token_expires_and_ends_with_its_tenant
                an_address_gets_one_confirmation_email_a_day
                an_email_that_was_not_sent_is_claimed_again
                emails_are_limited_per_tenant_and_day
            }
            tenant_lookup {
                an_id_alone_determines_its_tenant
            }
            endpoints {
                an_endpoint_is_read_back_unchanged
                the_number_of_endpoints_per_tenant_is_limited
                a_change_keeps_tenant_creation_time_and_counts
                a_status_change_stores_health_only_if_newer
                a_deleted_endpoint_stays_deleted
                endpoints_are_listed_without_deleted_ones
            }
            accept {
                events_go_to_subscribed_endpoints
                paused_endpoints_get_events_and_disabled_ones_do_not
                changed_patterns_apply_to_the_next_event
                a_change_of_one_of_many_endpoints_applies_to_the_next_event
                a_test_event_goes_to_its_endpoint_only
                an_event_is_read_back_byte_for_byte
                a_trace_stays_with_its_event
                events_of_an_unknown_tenant_are_refused
                a_batch_is_all_or_nothing
                the_same_idempotency_key_makes_one_event
                concurrent_events_with_the_same_key_make_one_event
                a_scheduled_event_waits_for_its_time
                the_deadline_comes_from_the_nearest_policy
                deliveries_are_handed_over_in_order_before_the_acknowledgement
                writes_of_a_class_take_effect_in_the_order_of_the_calls
                a_request_with_too_many_deliveries_is_refused
            }
            one_off_requests {
                an_origin_endpoint_is_found_by_its_url_only
                an_origin_endpoint_gets_no_events
                a_request_is_read_back_with_its_delivery
                the_policy_of_a_request_decides_its_deadline
                the_keys_of_a_tenant_are_read_back
                idle_origins_are_deleted
            }
            schedules {
                a_schedule_is_read_back_unchanged
                the_number_of_schedules_per_tenant_is_limited
                an_outdated_change_of_a_schedule_is_refused
                schedules_are_listed_newest_first
                due_schedules_are_found_in_their_order
                only_the_last_runs_are_kept
                expired_runs_are_deleted
                schedules_are_deleted_with_their_tenant
                failing_schedules_are_counted
                a_postponed_schedule_is_due_later
                the_progress_of_an_event_is_known
            }
            schedule_bounds {
                a_page_of_large_schedules_ends_early
                postponements_of_a_wrong_clock_are_ended
            }
            schedule_decisions {
                a_decision_is_written_with_its_events
                a_decision_applies_to_one_version
                a_refused_decision_changes_nothing
                a_decision_with_many_deliveries_is_written_once
            }
            quotas {
                the_quota_per_second_is_enforced
                the_quota_per_month_is_enforced
                a_batch_that_never_fits_has_no_wait
                repeated_events_use_no_quota
                concurrent_callers_do_not_exceed_the_quota
                usage_is_shared_and_survives_a_restart
                a_new_tenant_with_a_reused_id_has_no_usage
            }
            fetch {
                due_deliveries_are_returned_earliest_first
                the_next_due_time_is_returned
                only_the_oldest_delivery_of_an_ordering_key_is_returned
                ordering_keys_are_ignored_on_unordered_endpoints
                a_replayed_delivery_keeps_its_position_in_the_order
                unfinished_work_returns_every_endpoint_with_its_earliest_due_time
            }
            records {
                an_attempt_is_stored_with_its_detail
                attempts_of_all_rounds_stay_in_order
                a_delivery_is_read_back_completely
                a_stale_record_changes_nothing
                an_ended_delivery_stays_ended
                older_health_does_not_replace_newer
                a_disable_stores_its_reason_and_does_not_undo_a_deletion
                endpoint_changes_become_notifications_in_order
                a_waiting_delivery_can_be_cancelled_once
                a_late_delivery_expires_without_an_attempt
                a_delivery_that_changed_since_it_was_dropped_goes_on
            }
            manual_retries {
                a_waiting_delivery_is_due_now
                an_ended_delivery_starts_a_new_round
                a_disabled_or_deleted_endpoint_refuses_retries
                a_delivery_of_another_tenant_does_not_exist
            }
            sweeps {
                a_sweep_works_in_steps_and_spares_deliveries_in_flight
                a_sweep_stores_its_reason
            }
            lists {
                pages_hold_every_delivery_once_newest_first
                every_filter_and_pair_of_filters_returns_the_matching_rows
                pages_stay_complete_while_rows_are_added
                events_are_found_by_type_and_time
                held_follows_from_the_endpoint
                tenants_see_only_their_own_rows
            }
            dead_letters {
                dead_letters_are_grouped_by_endpoint_and_cause
                pages_of_groups_are_complete_at_any_length
                the_count_of_a_group_is_bounded
                a_replay_of_a_group_covers_exactly_the_group
                dead_letters_belong_to_their_tenant
                endpoints_that_need_attention_are_listed_paused_ones_last
            }
            replays {
                failed_deliveries_are_replayed_once
                only_matching_deliveries_are_replayed
                a_delivery_that_fails_again_is_not_replayed_twice
                deliveries_retried_meanwhile_are_skipped
                failures_after_the_start_are_not_replayed
                disabled_and_deleted_endpoints_are_skipped
                a_replay_survives_a_restart
                a_cancelled_replay_stops
                replays_belong_to_their_tenant
            }
            missed_events {
                missed_events_are_sent
                a_test_event_of_another_endpoint_is_not_missed
            }
            notifications {
                failures_become_one_notification_per_endpoint
                swept_deliveries_of_a_deleted_endpoint_are_not_reported
                a_replayed_delivery_that_fails_again_is_counted_again
                notifications_are_sent_once_and_removed
                an_audit_entry_of_a_notification_belongs_to_its_tenant
                the_number_of_waiting_notifications_is_bounded
                the_age_of_the_oldest_waiting_notification_is_known
                the_stored_size_grows_with_the_data
                lines_are_collected_in_an_email_until_it_is_due
                a_claimed_email_is_not_claimed_again_for_a_while
                lines_added_while_an_email_is_sent_go_to_the_next
                an_email_is_retried_or_dropped
                a_clock_set_back_does_not_delay_emails
                a_long_email_counts_its_omitted_lines
            }
            counts {
                counts_equal_a_recount
                deliveries_in_retry_for_long_are_counted
                notifications_are_read_from_a_position
            }
            stats_buckets {
                stats_are_added_up_and_survive_a_restart
                many_stats_are_added_at_once
                scopes_have_separate_stats
                a_new_tenant_with_a_reused_id_has_no_stats
                old_buckets_are_removed_in_small_steps
                the_scopes_with_most_failures_come_first
            }
            counted_stats {
                attempts_are_counted_when_they_are_recorded
                dead_letters_without_an_attempt_are_counted
                a_superseded_record_counts_nothing
                deliveries_of_the_operational_tenant_are_only_in_its_own_stats
                stats_of_records_equal_the_stored_attempts
            }
            alerts {
                an_alert_is_raised_once_and_resolved_once
                alerts_need_an_existing_scope
                alerts_are_found_by_every_filter
                a_new_tenant_with_a_reused_id_sees_no_earlier_alert
                old_resolved_alerts_are_removed_in_small_steps
            }
            retention {
                unfinished_data_is_kept
                expired_events_are_removed_with_all_their_rows
                a_tenant_can_have_its_own_retention
                a_removed_event_frees_its_idempotency_key
                retention_steps_start_over_at_the_end
                expired_replays_are_removed
            }
            retention_periods {
                payloads_attempts_and_deliveries_expire_separately
                unfinished_deliveries_keep_payload_and_attempts
                events_without_deliveries_lose_their_payload
                replayed_deliveries_keep_their_payload
                attempt_numbers_continue_after_removal
                deliveries_without_payload_cannot_be_replayed
                an_idempotency_key_outlives_the_payload
                the_retention_of_a_tenant_precedes_that_of_its_plan
                changed_retention_applies_at_once
            }
            reopening {
                a_closed_store_returns_closed
                all_data_survives_a_restart
                ids_increase_even_if_the_clock_goes_back
                a_probe_writes_to_the_store
            }
            large_data {
                long_lists_are_complete
                a_long_queue_of_one_key_does_not_hide_other_keys
                a_long_replay_is_complete
                a_request_with_many_deliveries_is_complete
                a_request_with_many_bytes_is_complete
                a_repeated_event_names_its_first_deliveries
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
        .expect("the case exists");
    block_on((case.run)(harness));
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime starts")
        .block_on(future)
}
