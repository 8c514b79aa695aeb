//! A metric, independent of its output format: Prometheus text or OTLP.
//!
//! [`exposition`](super::exposition) decides once which metrics there are; each exporter only formats them.

use std::borrow::Cow;

use super::histogram::HistogramSnapshot;

/// One metric with all its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Name in Prometheus style: a counter ends with `_total`, a unit comes last.
    pub name: &'static str,
    /// Description, one sentence.
    pub help: &'static str,
    /// Type and values.
    pub values: Values,
}

/// Type and values of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Only increases until the process ends.
    Counter(Vec<Labelled<Number>>),
    /// Increases and decreases.
    Gauge(Vec<Labelled<Number>>),
    /// Distribution of durations.
    Histogram(Vec<Labelled<HistogramSnapshot>>),
}

/// A value with the labels that distinguish it from the other values of its metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled<T> {
    /// Label names and values.
    pub labels: Vec<(&'static str, Cow<'static, str>)>,
    /// The value.
    pub value: T,
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// A ratio or another fraction.
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
    /// The only value of a metric, without labels.
    pub fn alone(value: impl Into<T>) -> Labelled<T> {
        Labelled {
            labels: Vec::new(),
            value: value.into(),
        }
    }

    /// One of several values, with one label.
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
    /// Creates a counter with a single value.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Metric {
        let values = Values::Counter(vec![Labelled::alone(value)]);
        Metric { name, help, values }
    }

    /// Creates a counter with one value per label.
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

    /// Creates a gauge with a single value.
    pub fn gauge(name: &'static str, help: &'static str, value: impl Into<Number>) -> Metric {
        let values = Values::Gauge(vec![Labelled::alone(value)]);
        Metric { name, help, values }
    }

    /// Creates a gauge with one value per label.
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

    /// Creates a histogram.
    pub fn histogram(
        name: &'static str,
        help: &'static str,
        snapshot: HistogramSnapshot,
    ) -> Metric {
        let values = Values::Histogram(vec![Labelled::alone(snapshot)]);
        Metric { name, help, values }
    }
}
