//! A metric, whoever will read it: Prometheus as text, or a collector over OTLP.
//!
//! What is told is decided once, in [`exposition`](super::exposition); each reader has its own way to
//! write it down.

use std::borrow::Cow;

use super::histogram::Snapshot;

/// One metric with all its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name, as Prometheus writes it: a counter ends with `_total`, a unit stands last.
    pub name: &'static str,
    /// What it tells, in a sentence.
    pub help: &'static str,
    /// What it is, and how much.
    pub values: Values,
}

/// What a metric is, and how much.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Only grows, until the process ends.
    Counter(Vec<Labelled<Number>>),
    /// Goes up and down.
    Gauge(Vec<Labelled<Number>>),
    /// How long things took.
    Histogram(Vec<Labelled<Snapshot>>),
}

/// A value, and what tells it from the others of its metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled<T> {
    /// Names and values.
    pub labels: Vec<(&'static str, Cow<'static, str>)>,
    /// The value.
    pub value: T,
}

/// How much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// A ratio.
    Fraction(f64),
}

impl From<u64> for Number {
    fn from(count: u64) -> Number {
        Number::Whole(count)
    }
}

impl From<f64> for Number {
    fn from(ratio: f64) -> Number {
        Number::Fraction(ratio)
    }
}

impl<T> Labelled<T> {
    /// The only value of a metric.
    pub fn alone(value: impl Into<T>) -> Labelled<T> {
        Labelled {
            labels: Vec::new(),
            value: value.into(),
        }
    }

    /// One of several values.
    pub fn with(
        label: &'static str,
        of: impl Into<Cow<'static, str>>,
        value: impl Into<T>,
    ) -> Labelled<T> {
        Labelled {
            labels: vec![(label, of.into())],
            value: value.into(),
        }
    }
}

impl Metric {
    /// A counter that is one number.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Metric {
        let values = Values::Counter(vec![Labelled::alone(value)]);
        Metric { name, help, values }
    }

    /// A counter by a label.
    pub fn counters<V: Into<Cow<'static, str>>>(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: impl IntoIterator<Item = (V, u64)>,
    ) -> Metric {
        let values = values.into_iter();
        let values = values.map(|(of, value)| Labelled::with(label, of, value));
        let values = Values::Counter(values.collect());
        Metric { name, help, values }
    }

    /// A gauge that is one number.
    pub fn gauge(name: &'static str, help: &'static str, value: impl Into<Number>) -> Metric {
        let values = Values::Gauge(vec![Labelled::alone(value)]);
        Metric { name, help, values }
    }

    /// A gauge by a label.
    pub fn gauges<V: Into<Cow<'static, str>>, N: Into<Number>>(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: impl IntoIterator<Item = (V, N)>,
    ) -> Metric {
        let values = values.into_iter();
        let values = values.map(|(of, value)| Labelled::with(label, of, value));
        let values = Values::Gauge(values.collect());
        Metric { name, help, values }
    }

    /// A histogram.
    pub fn histogram(name: &'static str, help: &'static str, seen: Snapshot) -> Metric {
        let values = Values::Histogram(vec![Labelled::alone(seen)]);
        Metric { name, help, values }
    }
}
