//! Parses the server's metrics: the part of the Prometheus text format that benchmarks need.
//!
//! Values of all label sets are added up, so a metric that is split by status reads as its total. A metric that
//! cannot be parsed is treated as absent.

/// A histogram, or the difference of two.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Upper bound and cumulative count, by ascending bound. The last bound is infinite.
    buckets: Vec<(f64, f64)>,
}

/// One line: name, labels and value.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter_map(|line| {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (name, labels, rest) = match line.split_once('{') {
            Some((name, rest)) => {
                let (labels, rest) = rest.rsplit_once('}')?;
                (name, labels, rest)
            }
            None => {
                let (name, rest) = line.split_once(char::is_whitespace)?;
                (name, "", rest)
            }
        };
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Sample {
            name,
            labels,
            value,
        })
    })
}

/// Returns the total of a counter or gauge over all its label sets, if it exists.
pub fn total(text: &str, name: &str) -> Option<f64> {
    let values = samples(text).filter(|sample| sample.name == name);
    values.map(|sample| sample.value).reduce(|a, b| a + b)
}

impl Histogram {
    /// Reads the histogram of this name, if it exists.
    pub fn read(text: &str, name: &str) -> Option<Histogram> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for sample in samples(text) {
            if sample.name.strip_suffix("_bucket") != Some(name) {
                continue;
            }
            let bound = sample.labels.split(',').find_map(|label| {
                let value = label.trim().strip_prefix("le=\"")?.strip_suffix('"')?;
                match value {
                    "+Inf" => Some(f64::INFINITY),
                    finite => finite.parse().ok(),
                }
            })?;
            match buckets.iter_mut().find(|bucket| bucket.0 == bound) {
                Some(bucket) => bucket.1 += sample.value,
                None => buckets.push((bound, sample.value)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let whole = buckets.last().is_some_and(|last| last.0.is_infinite());
        whole.then_some(Histogram { buckets })
    }

    /// Returns the difference to an earlier state.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let before = |bound: f64| {
            let same = earlier.buckets.iter().find(|bucket| bucket.0 == bound);
            same.map_or(0.0, |bucket| bucket.1)
        };
        let buckets = self.buckets.iter();
        Histogram {
            buckets: buckets
                .map(|(bound, count)| (*bound, (count - before(*bound)).max(0.0)))
                .collect(),
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |last| last.1)
    }

    /// Returns the value that this share of all values is not above. Values are assumed to be evenly distributed
    /// within a bucket. Above the last finite bound, returns that bound.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = share * self.count();
        if self.count() <= 0.0 {
            return None;
        }
        let (mut lower, mut below) = (0.0, 0.0);
        for (upper, at_most) in &self.buckets {
            if *at_most >= rank {
                if upper.is_infinite() {
                    return Some(lower);
                }
                let within = (rank - below) / (at_most - below).max(f64::MIN_POSITIVE);
                return Some(lower + (upper - lower) * within.clamp(0.0, 1.0));
            }
            (lower, below) = (*upper, *at_most);
        }
        Some(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP lag_seconds From accept to first byte sent.
# TYPE lag_seconds histogram
lag_seconds_bucket{le=\"0.001\"} 50
lag_seconds_bucket{le=\"0.002\"} 90
lag_seconds_bucket{le=\"0.004\"} 99
lag_seconds_bucket{le=\"+Inf\"} 100
lag_seconds_sum 0.2
lag_seconds_count 100
lag_seconds_of_another_bucket{le=\"+Inf\"} 7

deliveries_total{status=\"succeeded\"} 12 1700000000000
deliveries_total{status=\"a } in it\"} 3
pending 4e2
";

    #[test]
    fn a_quantile_lies_within_its_bucket() {
        let lag = Histogram::read(PAGE, "lag_seconds").unwrap();
        assert_eq!(lag.count(), 100.0);
        assert_eq!(lag.quantile(0.5), Some(0.001));
        assert_eq!(lag.quantile(0.25), Some(0.0005));
        let p70 = lag.quantile(0.70).unwrap();
        assert!((p70 - 0.0015).abs() < 1e-12, "{p70}");
        let p99 = lag.quantile(0.99).unwrap();
        assert!((p99 - 0.004).abs() < 1e-12, "{p99}");
    }

    #[test]
    fn a_quantile_above_the_last_bound_is_that_bound() {
        let lag = Histogram::read(PAGE, "lag_seconds").unwrap();
        assert_eq!(lag.quantile(0.999), Some(0.004));
    }

    #[test]
    fn a_difference_counts_only_later_values() {
        let earlier = Histogram::read(PAGE, "lag_seconds").unwrap();
        let page = "lag_seconds_bucket{le=\"0.001\"} 50\nlag_seconds_bucket{le=\"0.002\"} 190\n\
                    lag_seconds_bucket{le=\"0.004\"} 199\nlag_seconds_bucket{le=\"+Inf\"} 200\n";
        let since = Histogram::read(page, "lag_seconds")
            .unwrap()
            .since(&earlier);
        assert_eq!(since.count(), 100.0);
        assert_eq!(since.quantile(0.5), Some(0.0015));
        assert_eq!(earlier.since(&earlier).quantile(0.5), None);
    }

    #[test]
    fn label_sets_are_added_up() {
        assert_eq!(total(PAGE, "deliveries_total"), Some(15.0));
        assert_eq!(total(PAGE, "pending"), Some(400.0));
        assert_eq!(total(PAGE, "absent"), None);
        let split = "h_bucket{to=\"a\",le=\"1\"} 1\nh_bucket{to=\"a\",le=\"+Inf\"} 2\n\
                     h_bucket{le=\"1\",to=\"b\"} 3\nh_bucket{le=\"+Inf\",to=\"b\"} 4\n";
        let split = Histogram::read(split, "h").unwrap();
        assert_eq!(split.buckets, [(1.0, 4.0), (f64::INFINITY, 6.0)]);
    }

    #[test]
    fn an_incomplete_histogram_is_none() {
        assert_eq!(Histogram::read(PAGE, "pending"), None);
        assert_eq!(Histogram::read("h_bucket{le=\"1\"} 1\n", "h"), None);
        assert_eq!(Histogram::read("", "h"), None);
    }
}
