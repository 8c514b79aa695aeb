//! The frame around every page: head, navigation, breadcrumbs, footer.
//!
//! [`render_page`] frames a page of a visitor with the navigation of the site: dashboard or portal.
//! [`render_unauthenticated`] frames pages without a visitor, such as the sign-in page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::components::{csrf_field, url_text};
use super::page::{FlashMessage, Page, Section, Tab};
use super::page_request::PageRequest;
use super::state::{Dashboard, Site};
use super::urls::DASHBOARD_PATH;

/// Navigation for visitors with an admin key. A further page gets a [`Tab`] and an entry here.
const ADMIN_TABS: &[Tab] = &[
    Tab::Overview,
    Tab::Alerts,
    Tab::Tenants,
    Tab::Lab,
    Tab::Nodes,
    Tab::Audit,
];
/// Navigation of one tenant's pages, for visitors with a key.
const TENANT_TABS: &[Tab] = &[
    Tab::Overview,
    Tab::Alerts,
    Tab::Endpoints,
    Tab::Events,
    Tab::Deliveries,
    Tab::DeadLetters,
    Tab::Replays,
    Tab::Lab,
    Tab::Keys,
    Tab::Settings,
];
/// Navigation of the portal: a customer's view.
const PORTAL_TABS: &[Tab] = &[
    Tab::Overview,
    Tab::Endpoints,
    Tab::Deliveries,
    Tab::DeadLetters,
    Tab::Replays,
];

/// Renders a page with its complete layout.
pub(super) fn render_page(
    request: &PageRequest,
    page: &Page,
    message: Option<FlashMessage>,
) -> Markup {
    let dashboard = &request.dashboard;
    let is_live = page.sections.iter().any(|section| section.is_live);
    let site = request.site();
    let home = match site {
        Site::Portal => request.tenant_link(""),
        Site::Dashboard => request.link(""),
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(dashboard, site, &page.title))
            body data-live[is_live] {
                a.skip href="#main" { "Skip to content" }
                header.top {
                    (brand(dashboard, site, Some(&home)))
                    (site_nav(request, page))
                    (sign_out_form(request))
                }
                (tenant_nav(request, page))
                main #main tabindex="-1" {
                    (crumbs(page))
                    @if let Some(message) = message { p.flash role="status" { (message.text()) } }
                    (content(page))
                }
                (footer(site))
                div #live-state .live-state role="status" {}
            }
        }
    }
}

/// Renders a page for a visitor who is not authenticated.
pub(super) fn render_unauthenticated(dashboard: &Dashboard, site: Site, page: &Page) -> Markup {
    render_unauthenticated_with_message(dashboard, site, page, None)
}

/// Like [`render_unauthenticated`], with a message about the action that was just done.
pub(super) fn render_unauthenticated_with_message(
    dashboard: &Dashboard,
    site: Site,
    page: &Page,
    message: Option<FlashMessage>,
) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(dashboard, site, &page.title))
            body.bare {
                a.skip href="#main" { "Skip to content" }
                header.top { (brand(dashboard, site, start_page(site))) }
                main #main tabindex="-1" {
                    @if let Some(message) = message { p.flash role="status" { (message.text()) } }
                    (content(page))
                }
                (footer(site))
            }
        }
    }
}

/// Returns the start page for a visitor who is not authenticated. A portal has none: its visitors have only their
/// link and may not use the dashboard.
pub(super) fn start_page(site: Site) -> Option<&'static str> {
    match site {
        Site::Dashboard => Some(DASHBOARD_PATH),
        Site::Portal => None,
    }
}

/// Renders a page that only reloads itself. The second request comes from this site, so the browser sends its cookie.
pub(super) fn reload_page(dashboard: &Dashboard) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content="0";
                title { (dashboard.brand(Site::Dashboard).name) }
            }
            body { main { h1 { "Loading…" } p { "If nothing happens, reload the page." } } }
        }
    }
}

fn head(dashboard: &Dashboard, site: Site, title: &str) -> Markup {
    let assets = &dashboard.assets;
    let colours = match site {
        Site::Dashboard => "dashboard.css",
        Site::Portal => "portal.css",
    };
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · " (dashboard.brand(site).name) }
            link rel="icon" href=(assets.link("icon.svg")) type="image/svg+xml";
            link rel="stylesheet" href=(assets.link("style.css"));
            link rel="stylesheet" href=(assets.link(colours));
            script src=(assets.link("script.js")) defer {}
        }
    }
}

fn brand(dashboard: &Dashboard, site: Site, home: Option<&str>) -> Markup {
    let brand = dashboard.brand(site);
    html! {
        a.brand href=[home] {
            @if brand.logo.is_some() {
                img src=(dashboard.assets.link("logo")) alt="" height="28";
            } @else {
                (MARK)
            }
            span { (brand.name) }
        }
    }
}

/// Our own logo: an envelope with speed lines.
const MARK: PreEscaped<&str> = PreEscaped(
    "<svg class=\"mark\" viewBox=\"0 0 32 24\" width=\"32\" height=\"24\" aria-hidden=\"true\">\
     <path d=\"M10 3h19a2 2 0 0 1 2 2v14a2 2 0 0 1-2 2H10\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"/>\
     <path d=\"M10 4l10 9L30 4\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"/>\
     <path d=\"M4 8h8M1 13h9M4 18h8\" stroke=\"currentColor\" stroke-width=\"2\" stroke-linecap=\"round\"/></svg>",
);

fn site_nav(request: &PageRequest, page: &Page) -> Markup {
    if !request.is_admin() {
        return html! {};
    }
    html! {
        nav aria-label="Site" {
            ul { @for tab in ADMIN_TABS { li { (tab_link(&request.link(tab.path()), *tab, is_current(request, page, *tab))) } } }
        }
        (search_form(&request.link("/find"), "tenant, URL, type or id"))
    }
}

/// Returns whether a tab of the site navigation is the current one.
fn is_current(request: &PageRequest, page: &Page, tab: Tab) -> bool {
    match request.tenant {
        None => page.tab == tab,
        Some(_) => tab == Tab::Tenants,
    }
}

fn tenant_nav(request: &PageRequest, page: &Page) -> Markup {
    let Some(tenant) = &request.tenant else {
        return html! {};
    };
    let tabs = match request.is_portal() {
        true => PORTAL_TABS,
        false => TENANT_TABS,
    };
    html! {
        div.tenant role="region" aria-label="Tenant pages" {
            @if !request.is_portal() { p.tenant-name { span.unseen { "Tenant " } (tenant) } }
            nav aria-label="Tenant" {
                ul { @for tab in tabs { li { (tab_link(&request.tenant_link(tab.path()), *tab, page.tab == *tab)) } } }
            }
            @if !request.is_admin() {
                (search_form(&request.tenant_link("/find"), "URL, type or id"))
            }
        }
    }
}

fn search_form(action: &str, placeholder: &str) -> Markup {
    html! {
        form.find role="search" action=(action) {
            label.unseen for="find" { "Find" }
            input #find name="q" placeholder=(placeholder) autocomplete="off" spellcheck="false" required;
            button type="submit" { "Find" }
        }
    }
}

fn tab_link(link: &str, tab: Tab, is_current: bool) -> Markup {
    html! { a href=(link) aria-current=[is_current.then_some("page")] { (tab.name()) } }
}

fn sign_out_form(request: &PageRequest) -> Markup {
    if !request.has_session() {
        return html! {};
    }
    html! {
        form.leave method="post" action={ (DASHBOARD_PATH) "/sign-out" } {
            (csrf_field(request))
            button.quiet type="submit" { "Sign out" }
        }
    }
}

fn crumbs(page: &Page) -> Markup {
    if page.crumbs.is_empty() {
        return html! {};
    }
    html! {
        nav.crumbs aria-label="Breadcrumb" {
            ol { @for (name, link) in &page.crumbs { li { a href=(link) { (url_text(name)) } } } }
        }
    }
}

fn content(page: &Page) -> Markup {
    html! {
        div.heading {
            h1 { (url_text(&page.title)) }
            @if let Some(lead) = &page.lead { div.lead { (lead) } }
        }
        @for section in &page.sections { (section_element(section)) }
    }
}

fn section_element(section: &Section) -> Markup {
    html! {
        div.section #(section.id) data-print=[section.is_live.then(|| section.content_hash())] {
            (section.markup)
        }
    }
}

fn footer(site: Site) -> Markup {
    html! {
        footer { p {
            "posthaste " (env!("CARGO_PKG_VERSION")) " · "
            @match site {
                Site::Dashboard => { a href="/docs" { "API" } " · " a href="/docs/operations" { "Runbook" } " · " }
                Site::Portal => {}
            }
            span #zone-name { "Times in UTC" }
            // Shown by the script, which converts the times.
            " " button #zone.quiet type="button" hidden { "Use my time zone" }
        } }
    }
}
