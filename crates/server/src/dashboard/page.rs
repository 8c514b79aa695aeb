//! What a page is made of.

use http::StatusCode;
use maud::Markup;

/// A page: a heading and sections, in the order in which they are read.
pub(super) struct Page {
    /// Its heading, and with the operator's name the title of its window.
    pub(super) title: String,
    /// What it is about, below the heading.
    pub(super) lead: Option<Markup>,
    /// Where it lies: names and links from the top down to what is above it.
    pub(super) crumbs: Vec<(String, String)>,
    /// Which part of the site it belongs to.
    pub(super) tab: Tab,
    /// What it says.
    pub(super) sections: Vec<Section>,
    /// How it is answered.
    pub(super) status: StatusCode,
}

impl Page {
    /// A page with nothing on it yet.
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

    /// With a sentence below the heading.
    pub(super) fn lead(mut self, lead: Markup) -> Page {
        self.lead = Some(lead);
        self
    }

    /// Below something else.
    pub(super) fn below(mut self, name: impl Into<String>, link: impl Into<String>) -> Page {
        self.crumbs.push((name.into(), link.into()));
        self
    }

    /// With a section that is sent again whenever it changes.
    pub(super) fn live(self, id: &'static str, markup: Markup) -> Page {
        self.section(id, true, markup)
    }

    /// With a section that stays as it is, such as a form that somebody fills in.
    pub(super) fn still(self, id: &'static str, markup: Markup) -> Page {
        self.section(id, false, markup)
    }

    /// With another status than 200.
    pub(super) fn with_status(mut self, status: StatusCode) -> Page {
        self.status = status;
        self
    }

    fn section(mut self, id: &'static str, is_live: bool, markup: Markup) -> Page {
        debug_assert!(
            self.sections.iter().all(|earlier| earlier.id != id),
            "{id} is there twice"
        );
        self.sections.push(Section {
            id,
            is_live,
            markup,
        });
        self
    }
}

/// A piece of a page.
pub(super) struct Section {
    /// Its name within the page.
    pub(super) id: &'static str,
    /// Whether it is sent again when it changes.
    pub(super) is_live: bool,
    /// What it says.
    pub(super) markup: Markup,
}

impl Section {
    /// What tells one rendering from another.
    pub(super) fn print(&self) -> String {
        print_of(self.markup.0.as_bytes())
    }
}

/// What tells one content from another: a few characters of its hash.
pub(super) fn print_of(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    hash.as_ref()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The parts of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    /// How everything is.
    Overview,
    /// What is wrong.
    Alerts,
    /// Who there is.
    Tenants,
    /// Where events go.
    Endpoints,
    /// What was sent, or will be.
    Deliveries,
    /// What was given up.
    DeadLetters,
    /// What is sent again.
    Replays,
    /// What a policy does.
    Lab,
    /// Who did what.
    Audit,
    /// None of them.
    None,
}

impl Tab {
    /// What it is called.
    pub(super) fn name(self) -> &'static str {
        match self {
            Tab::Overview => "Overview",
            Tab::Alerts => "Alerts",
            Tab::Tenants => "Tenants",
            Tab::Endpoints => "Endpoints",
            Tab::Deliveries => "Deliveries",
            Tab::DeadLetters => "Dead letters",
            Tab::Replays => "Replays",
            Tab::Lab => "Retry lab",
            Tab::Audit => "Audit",
            Tab::None => "",
        }
    }

    /// Where it is, below what it belongs to.
    pub(super) fn path(self) -> &'static str {
        match self {
            Tab::Overview | Tab::None => "",
            Tab::Alerts => "/alerts",
            Tab::Tenants => "/tenants",
            Tab::Endpoints => "/endpoints",
            Tab::Deliveries => "/deliveries",
            Tab::DeadLetters => "/dead-letters",
            Tab::Replays => "/replays",
            Tab::Lab => "/lab",
            Tab::Audit => "/audit",
        }
    }
}

/// What came of asking for a page.
pub(super) enum Shown {
    /// This.
    Page(Page),
    /// It is elsewhere.
    Elsewhere(String),
}

impl From<Page> for Shown {
    fn from(page: Page) -> Shown {
        Shown::Page(page)
    }
}

/// What comes after something was done.
pub(super) enum After {
    /// Another page, which says what was done.
    Goto(String, Done),
    /// This page, and it is kept nowhere: it may show a secret, or what was wrong.
    Show(Page),
}

/// What was done, as the next page says it. It travels in the link, so it is one of these and no words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// An endpoint came to be.
    Created,
    /// Something is as it was wished to be.
    Saved,
    /// An endpoint holds what is for it.
    Paused,
    /// It lets go again.
    Resumed,
    /// It takes part again.
    Enabled,
    /// It takes part no more.
    Disabled,
    /// It is gone.
    Deleted,
    /// A test event was sent.
    Tested,
    /// A delivery is tried again.
    Retried,
    /// A delivery is tried again as soon as its endpoint lets anything go.
    NextInLine,
    /// A test event was accepted, and is held.
    TestHeld,
    /// A delivery was called off.
    Cancelled,
    /// A replay runs.
    ReplayBegun,
    /// A replay was stopped.
    ReplayStopped,
    /// A tenant came to be.
    TenantCreated,
    /// A link to a portal opens nothing any more.
    LinkEnded,
    /// Somebody left.
    SignedOut,
}

impl Done {
    /// Everything that can be done.
    const ALL: [Done; 17] = [
        Done::Created,
        Done::Saved,
        Done::Paused,
        Done::Resumed,
        Done::Enabled,
        Done::Disabled,
        Done::Deleted,
        Done::Tested,
        Done::Retried,
        Done::NextInLine,
        Done::TestHeld,
        Done::Cancelled,
        Done::ReplayBegun,
        Done::ReplayStopped,
        Done::TenantCreated,
        Done::LinkEnded,
        Done::SignedOut,
    ];

    /// How it stands in a link.
    pub(super) fn word(self) -> &'static str {
        match self {
            Done::Created => "created",
            Done::Saved => "saved",
            Done::Paused => "paused",
            Done::Resumed => "resumed",
            Done::Enabled => "enabled",
            Done::Disabled => "disabled",
            Done::Deleted => "deleted",
            Done::Tested => "tested",
            Done::Retried => "retried",
            Done::NextInLine => "next-in-line",
            Done::TestHeld => "test-held",
            Done::Cancelled => "cancelled",
            Done::ReplayBegun => "replaying",
            Done::ReplayStopped => "stopped",
            Done::TenantCreated => "tenant-created",
            Done::LinkEnded => "link-ended",
            Done::SignedOut => "signed-out",
        }
    }

    /// What the next page says.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Done::Created => {
                "The endpoint is there. Events it wants are delivered to it from now on."
            }
            Done::Saved => "Saved. It holds from the next attempt on.",
            Done::Paused => "Paused. Deliveries are held, and none is lost.",
            Done::Resumed => {
                "Resumed. What was held drains gently; should the receiver still fail, the breaker trips again."
            }
            Done::Enabled => "Enabled. What it missed meanwhile can be replayed below.",
            Done::Disabled => "Disabled. What waited for it has failed and can be replayed later.",
            Done::Deleted => "Deleted. Nothing is sent to it any more.",
            Done::Tested => "A test event is on its way.",
            Done::Retried => "It is being tried again now.",
            Done::NextInLine => {
                "It is due now, and still held: it goes when the breaker lets a probe through, or when the endpoint is resumed."
            }
            Done::TestHeld => {
                "The test event is held like the rest: the endpoint is paused, or its breaker is tripped. It goes when that ends."
            }
            Done::Cancelled => "Called off. Nothing more is sent.",
            Done::ReplayBegun => "The replay has begun. It is paced like any other traffic.",
            Done::ReplayStopped => "The replay was stopped. What it had set going goes on.",
            Done::TenantCreated => "The tenant is there. Add an endpoint for its events to go to.",
            Done::LinkEnded => "The link has ended. Whoever has it open sees nothing new.",
            Done::SignedOut => "You are signed out.",
        }
    }

    /// What a link says was done.
    pub(super) fn read(word: &str) -> Option<Done> {
        Done::ALL.into_iter().find(|done| done.word() == word)
    }
}
