//! The structure of a page: [`Page`], its [`Section`]s and [`Tab`].
//!
//! A page handler returns a [`PageResult`], an action an [`ActionResult`]. After an action that succeeded, the browser
//! is redirected to a page that shows a [`FlashMessage`].

use http::StatusCode;
use maud::Markup;

/// A page: a heading and sections in reading order.
pub(super) struct Page {
    /// Heading; together with the operator's name also the window title.
    pub(super) title: String,
    /// Introduction below the heading.
    pub(super) lead: Option<Markup>,
    /// Breadcrumbs from the top: names and links of the pages above this one.
    pub(super) crumbs: Vec<(String, String)>,
    /// The navigation tab that is highlighted.
    pub(super) tab: Tab,
    /// Content of the page.
    pub(super) sections: Vec<Section>,
    /// HTTP status of the response.
    pub(super) status: StatusCode,
}

impl Page {
    /// Creates a page without content.
    pub(super) fn new(tab: Tab, title: impl Into<String>) -> Page {
        Page {
            title: title.into(),
            lead: None,
            crumbs: Vec::new(),
            tab,
            sections: Vec::new(),
            status: StatusCode::OK,
        }
    }

    /// Adds an introduction below the heading.
    pub(super) fn lead(mut self, lead: Markup) -> Page {
        self.lead = Some(lead);
        self
    }

    /// Adds a breadcrumb.
    pub(super) fn breadcrumb(mut self, name: impl Into<String>, link: impl Into<String>) -> Page {
        self.crumbs.push((name.into(), link.into()));
        self
    }

    /// Adds a section that is sent again whenever it changes.
    pub(super) fn live(self, id: &'static str, markup: Markup) -> Page {
        self.section(id, true, markup)
    }

    /// Adds a section that is never updated, such as a form.
    pub(super) fn static_section(self, id: &'static str, markup: Markup) -> Page {
        self.section(id, false, markup)
    }

    /// Sets the HTTP status, which is 200 by default.
    pub(super) fn with_status(mut self, status: StatusCode) -> Page {
        self.status = status;
        self
    }

    fn section(mut self, id: &'static str, is_live: bool, markup: Markup) -> Page {
        debug_assert!(
            self.sections.iter().all(|earlier| earlier.id != id),
            "section {id} is added twice"
        );
        self.sections.push(Section {
            id,
            is_live,
            markup,
        });
        self
    }
}

/// A part of a page.
pub(super) struct Section {
    /// Element id, unique within the page.
    pub(super) id: &'static str,
    /// True if the section is sent again when it changes.
    pub(super) is_live: bool,
    /// Content of the section.
    pub(super) markup: Markup,
}

impl Section {
    /// Returns a hash of the content, to detect changes.
    pub(super) fn content_hash(&self) -> String {
        content_hash(self.markup.0.as_bytes())
    }
}

/// Returns the first eight bytes of the SHA-256 hash, in hexadecimal.
pub(super) fn content_hash(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    hash.as_ref()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Navigation tabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    /// Stats and endpoints that need attention.
    Overview,
    /// Open and resolved alerts.
    Alerts,
    /// All tenants.
    Tenants,
    /// Endpoints of a tenant.
    Endpoints,
    /// Events of a tenant, and a form to send one.
    Events,
    /// Deliveries of a tenant.
    Deliveries,
    /// Dead letters of a tenant.
    DeadLetters,
    /// Replays of a tenant.
    Replays,
    /// Schedules of a tenant.
    Schedules,
    /// Simulation of retry policies.
    Lab,
    /// API keys and portal links of a tenant.
    Keys,
    /// Settings of a tenant.
    Settings,
    /// The nodes.
    Nodes,
    /// Audit log.
    Audit,
    /// No tab is highlighted.
    None,
}

impl Tab {
    /// Label of the tab.
    pub(super) fn name(self) -> &'static str {
        match self {
            Tab::Overview => "Overview",
            Tab::Alerts => "Alerts",
            Tab::Tenants => "Tenants",
            Tab::Endpoints => "Endpoints",
            Tab::Events => "Events",
            Tab::Deliveries => "Deliveries",
            Tab::DeadLetters => "Dead letters",
            Tab::Replays => "Replays",
            Tab::Schedules => "Schedules",
            Tab::Lab => "Retry lab",
            Tab::Keys => "Keys",
            Tab::Settings => "Settings",
            Tab::Nodes => "Nodes",
            Tab::Audit => "Audit log",
            Tab::None => "",
        }
    }

    /// Path of the tab, below the site or the tenant.
    pub(super) fn path(self) -> &'static str {
        match self {
            Tab::Overview | Tab::None => "",
            Tab::Alerts => "/alerts",
            Tab::Tenants => "/tenants",
            Tab::Endpoints => "/endpoints",
            Tab::Events => "/events",
            Tab::Deliveries => "/deliveries",
            Tab::DeadLetters => "/dead-letters",
            Tab::Replays => "/replays",
            Tab::Schedules => "/schedules",
            Tab::Lab => "/lab",
            Tab::Keys => "/keys",
            Tab::Settings => "/settings",
            Tab::Nodes => "/nodes",
            Tab::Audit => "/audit",
        }
    }
}

/// The result of requesting a page.
pub(super) enum PageResult {
    /// The page to show.
    Page(Page),
    /// A redirect to this link.
    Redirect(String),
}

impl From<Page> for PageResult {
    fn from(page: Page) -> PageResult {
        PageResult::Page(page)
    }
}

/// The result of an action.
pub(super) enum ActionResult {
    /// A redirect to a page that shows a message about the action.
    Redirect(String, FlashMessage),
    /// A page that is shown directly and never cached: it may contain a secret, or errors in a form.
    Page(Page),
}

/// The message about an action that the next page shows. It is passed in the link, so it is one of a fixed set and
/// never free text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlashMessage {
    /// An endpoint was created.
    Created,
    /// Settings of an endpoint were saved.
    Saved,
    /// Settings of a tenant were saved.
    SettingsSaved,
    /// An endpoint was paused.
    Paused,
    /// An endpoint was resumed.
    Resumed,
    /// An endpoint was enabled.
    Enabled,
    /// An endpoint was disabled.
    Disabled,
    /// An endpoint was deleted.
    Deleted,
    /// A test event was sent.
    Tested,
    /// A delivery is being retried.
    Retried,
    /// A delivery is due now, but held: it is sent when the breaker allows a probe or the endpoint is resumed.
    NextInLine,
    /// A test event was accepted and is held.
    TestHeld,
    /// A delivery was cancelled.
    Cancelled,
    /// A replay was started.
    ReplayBegun,
    /// A replay was stopped.
    ReplayStopped,
    /// A tenant was created.
    TenantCreated,
    /// A tenant was deleted.
    TenantDeleted,
    /// A portal link was revoked.
    LinkEnded,
    /// An API key was revoked.
    KeyRevoked,
    /// An event was accepted.
    EventSent,
    /// A confirmation email is being sent.
    ConfirmationSent,
    /// A schedule was created.
    ScheduleCreated,
    /// A schedule was changed.
    ScheduleSaved,
    /// A schedule was paused.
    SchedulePaused,
    /// A schedule was resumed.
    ScheduleResumed,
    /// A schedule was run by hand.
    ScheduleRun,
    /// A schedule was deleted.
    ScheduleDeleted,
    /// The visitor signed out.
    SignedOut,
}

impl FlashMessage {
    /// All messages.
    const ALL: [FlashMessage; 28] = [
        FlashMessage::Created,
        FlashMessage::Saved,
        FlashMessage::Paused,
        FlashMessage::Resumed,
        FlashMessage::Enabled,
        FlashMessage::Disabled,
        FlashMessage::Deleted,
        FlashMessage::Tested,
        FlashMessage::Retried,
        FlashMessage::NextInLine,
        FlashMessage::TestHeld,
        FlashMessage::Cancelled,
        FlashMessage::ReplayBegun,
        FlashMessage::ReplayStopped,
        FlashMessage::TenantCreated,
        FlashMessage::TenantDeleted,
        FlashMessage::LinkEnded,
        FlashMessage::KeyRevoked,
        FlashMessage::EventSent,
        FlashMessage::SettingsSaved,
        FlashMessage::ConfirmationSent,
        FlashMessage::ScheduleCreated,
        FlashMessage::ScheduleSaved,
        FlashMessage::SchedulePaused,
        FlashMessage::ScheduleResumed,
        FlashMessage::ScheduleRun,
        FlashMessage::ScheduleDeleted,
        FlashMessage::SignedOut,
    ];

    /// The name of the message in a link.
    pub(super) fn query_value(self) -> &'static str {
        match self {
            FlashMessage::Created => "created",
            FlashMessage::Saved => "saved",
            FlashMessage::Paused => "paused",
            FlashMessage::Resumed => "resumed",
            FlashMessage::Enabled => "enabled",
            FlashMessage::Disabled => "disabled",
            FlashMessage::Deleted => "deleted",
            FlashMessage::Tested => "tested",
            FlashMessage::Retried => "retried",
            FlashMessage::NextInLine => "next-in-line",
            FlashMessage::TestHeld => "test-held",
            FlashMessage::Cancelled => "cancelled",
            FlashMessage::ReplayBegun => "replaying",
            FlashMessage::ReplayStopped => "stopped",
            FlashMessage::TenantCreated => "tenant-created",
            FlashMessage::TenantDeleted => "tenant-deleted",
            FlashMessage::KeyRevoked => "key-revoked",
            FlashMessage::EventSent => "event-sent",
            FlashMessage::SettingsSaved => "settings-saved",
            FlashMessage::LinkEnded => "link-ended",
            FlashMessage::ConfirmationSent => "confirmation-sent",
            FlashMessage::ScheduleCreated => "schedule-created",
            FlashMessage::ScheduleSaved => "schedule-saved",
            FlashMessage::SchedulePaused => "schedule-paused",
            FlashMessage::ScheduleResumed => "schedule-resumed",
            FlashMessage::ScheduleRun => "schedule-run",
            FlashMessage::ScheduleDeleted => "schedule-deleted",
            FlashMessage::SignedOut => "signed-out",
        }
    }

    /// The text that the next page shows.
    pub(super) fn text(self) -> &'static str {
        match self {
            FlashMessage::Created => "Endpoint created. New matching events are delivered to it.",
            FlashMessage::Saved => "Changes saved. They apply from the next attempt.",
            FlashMessage::Paused => "Endpoint paused. Deliveries are held until you resume it.",
            FlashMessage::Resumed => {
                "Endpoint resumed. Held deliveries are sent gradually. If the receiver still fails, the breaker trips again."
            }
            FlashMessage::Enabled => "Endpoint enabled. You can replay missed events below.",
            FlashMessage::Disabled => {
                "Endpoint disabled. Its waiting deliveries failed. You can replay them after you enable it again."
            }
            FlashMessage::Deleted => "Endpoint deleted. No more requests are sent to it.",
            FlashMessage::Tested => "Test event accepted.",
            FlashMessage::Retried => "Retrying now.",
            FlashMessage::NextInLine => {
                "Due now, but still held: it is sent when the breaker allows a probe or the endpoint is resumed."
            }
            FlashMessage::TestHeld => {
                "Test event accepted, but held: the endpoint is paused or its breaker is tripped."
            }
            FlashMessage::Cancelled => "Delivery cancelled. No more attempts are made.",
            FlashMessage::ReplayBegun => "Replay started. The endpoints' limits apply.",
            FlashMessage::ReplayStopped => {
                "Replay stopped. Deliveries that it already started continue."
            }
            FlashMessage::TenantCreated => "Tenant created. Add an endpoint to receive its events.",
            FlashMessage::TenantDeleted => "Tenant deleted, including its endpoints and keys.",
            FlashMessage::KeyRevoked => "Key revoked. Requests with it are rejected.",
            FlashMessage::EventSent => "Event accepted.",
            FlashMessage::SettingsSaved => "Settings saved.",
            FlashMessage::LinkEnded => "Link revoked. It no longer opens the portal.",
            FlashMessage::ConfirmationSent => "Confirmation email queued.",
            FlashMessage::ScheduleCreated => "Schedule created.",
            FlashMessage::ScheduleSaved => "Schedule saved.",
            FlashMessage::SchedulePaused => {
                "Schedule paused. Runs that become due while it is paused count as missed."
            }
            FlashMessage::ScheduleResumed => "Schedule resumed.",
            FlashMessage::ScheduleRun => "Run started.",
            FlashMessage::ScheduleDeleted => "Schedule deleted. It creates no more events.",
            FlashMessage::SignedOut => "You have signed out.",
        }
    }

    /// Finds a message by its name in a link.
    pub(super) fn from_query(value: &str) -> Option<FlashMessage> {
        FlashMessage::ALL
            .into_iter()
            .find(|message| message.query_value() == value)
    }
}
