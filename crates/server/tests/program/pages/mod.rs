//! The pages in a real browser, served by the built program: end-to-end tests of user tasks.

mod cluster;
mod escaping;
mod every_page;
mod failed_delivery;
mod fixture;
mod http_client;
mod live_lists;
mod page_checks;
mod portal;
mod screenshots;
mod sign_in;
mod tenant_data;
mod user_actions;
