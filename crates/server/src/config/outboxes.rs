//! Reads the outboxes: `[[outbox]]`, each a table in the database of an application.
//!
//! Outboxes can be set only in the file, because there may be several.

use std::sync::Arc;

use posthaste_core::id::TenantId;
use posthaste_core::validation::Fields;
use posthaste_engine::database::{EgressDialer, with_password};
use posthaste_outbox::OutboxSettings;
use posthaste_store::postgres::outbox_table::{OutboxSource, TableName};

use super::error::ConfigError;
use super::fields::parsed;
use super::store::DatabaseUrl;
use super::types::Config;

/// Maximum number of outboxes. Each has a connection to its database.
const MAX_OUTBOXES: usize = 100;
/// Maximum length of the name of an outbox.
const MAX_OUTBOX_NAME_CHARS: usize = 64;

/// One outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxConfig {
    /// Its name.
    pub name: String,
    /// The application's database.
    pub database: DatabaseUrl,
    /// The table.
    pub table: TableName,
    /// The tenant of all rows; if absent, each row names its own.
    pub tenant: Option<TenantId>,
    /// True if accepted rows are kept.
    pub keep: bool,
}

/// Reads every outbox, and reports the invalid ones. A list replaces an earlier one.
pub(super) fn read(outboxes: &mut Vec<OutboxConfig>, fields: &mut Fields<'_, '_>) {
    let Some(list) = fields.list("outbox", MAX_OUTBOXES) else {
        return;
    };
    outboxes.clear();
    for (index, document) in list.iter().enumerate() {
        if let Some(inner) = fields.item("outbox", index, document) {
            outboxes.extend(read_outbox(inner));
        }
    }
}

fn read_outbox(mut fields: Fields<'_, '_>) -> Option<OutboxConfig> {
    fields.need("name");
    fields.need("database");
    let name = parsed(&mut fields, "name", read_name);
    let database = parsed(&mut fields, "database", str::parse);
    let table = match fields.contains("table") {
        true => parsed(&mut fields, "table", str::parse),
        false => Some(TableName::default()),
    };
    let tenant = parsed(&mut fields, "tenant", str::parse);
    let keep = fields.flag("keep").unwrap_or(false);
    fields.finish();
    Some(OutboxConfig {
        name: name?,
        database: database?,
        table: table?,
        tenant,
        keep,
    })
}

fn read_name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let fits = (1..=MAX_OUTBOX_NAME_CHARS).contains(&text.len()) && text.chars().all(allowed);
    match fits {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "must be 1 to {MAX_OUTBOX_NAME_CHARS} lower-case letters, digits, - and _"
        )),
    }
}

impl OutboxConfig {
    /// Returns the location of the table.
    pub fn source(&self) -> OutboxSource {
        OutboxSource {
            server: with_password(self.database.server()),
            dial: Arc::new(EgressDialer),
            table: self.table.clone(),
            keep: self.keep,
        }
    }
}

impl Config {
    /// Returns the settings of the outbox readers.
    pub fn outbox_settings(&self) -> Vec<OutboxSettings> {
        let outboxes = self.outboxes.iter();
        let settings = outboxes.map(|outbox| OutboxSettings {
            name: outbox.name.clone(),
            source: outbox.source(),
            tenant: outbox.tenant.clone(),
        });
        settings.collect()
    }

    /// Reports outboxes with the same name, and those that read the same table.
    pub(super) fn check_outboxes(&self, error: &mut ConfigError) {
        for (index, outbox) in self.outboxes.iter().enumerate() {
            let earlier = &self.outboxes[..index];
            if earlier.iter().any(|other| other.name == outbox.name) {
                error.add(
                    format!("outbox[{index}].name"),
                    format!(
                        "is \"{}\", the name of another outbox: names must be unique",
                        outbox.name
                    ),
                );
            }
            let place = |it: &OutboxConfig| (it.database.to_string(), it.table.clone());
            let same = earlier.iter().find(|other| place(other) == place(outbox));
            if let Some(other) = same {
                error.add(
                    format!("outbox[{index}].table"),
                    format!(
                        "is {} in {}, which outbox \"{}\" reads already: remove one of them",
                        outbox.table, outbox.database, other.name
                    ),
                );
            }
        }
    }
}
