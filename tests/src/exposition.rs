//! A strict reader of Prometheus' text format, version 0.0.4: stricter than Prometheus, so that no
//! scraper has to guess.

use std::collections::{BTreeMap, BTreeSet};

/// The samples of an exposition: the value of each sample, by its name and labels as they were
/// written.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    samples: BTreeMap<String, f64>,
}

/// A family while its lines are read.
struct Family {
    name: String,
    kind: String,
    /// The labels of each histogram, without `le`, with its buckets in the order of the lines.
    buckets: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Exposition {
    /// Reads `text`.
    ///
    /// # Panics
    /// If anything about it is not as it should be: names, escapes, HELP and TYPE before samples
    /// and once for each family, samples twice, buckets that do not ascend or do not add up, units
    /// that are not in the name.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut all = Self::default();
        let mut families = BTreeSet::new();
        let mut family: Option<Family> = None;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                if let Some(family) = family.take() {
                    all.close(&family);
                }
                let (name, help) = help.split_once(' ').expect("a name and a text");
                assert!(is_name(name), "{line}");
                assert!(help.ends_with('.') && !help.contains('\\'), "a sentence: {line}");
                assert!(families.insert(name.to_owned()), "{name} comes twice");
                let kind = lines.next().expect("TYPE follows HELP");
                let kind = kind.strip_prefix(&format!("# TYPE {name} ")).expect("of the same name");
                check_unit(name, kind);
                let (name, kind) = (name.to_owned(), kind.to_owned());
                family = Some(Family { name, kind, buckets: BTreeMap::new() });
                continue;
            }
            let family = family.as_mut().unwrap_or_else(|| panic!("no family: {line}"));
            all.sample(line, family);
        }
        all.close(&family.expect("at least one family"));
        all
    }

    fn sample(&mut self, line: &str, family: &mut Family) {
        let (id, value) = line.rsplit_once(' ').expect("a name and a value");
        let value: f64 = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let (name, labels) = match id.split_once('{') {
            None => (id, Vec::new()),
            Some((name, rest)) => (name, labels(rest)),
        };
        let names: BTreeSet<&str> = labels.iter().map(|(label, _)| &**label).collect();
        assert_eq!(names.len(), labels.len(), "a label comes twice: {line}");
        assert!(self.samples.insert(id.to_owned(), value).is_none(), "{id} comes twice");
        let suffix = name.strip_prefix(&family.name).unwrap_or_else(|| panic!("misplaced: {line}"));
        match (&*family.kind, suffix) {
            ("counter" | "gauge", "") | ("histogram", "_sum" | "_count") => {}
            ("histogram", "_bucket") => {
                let (le, rest): (Vec<_>, Vec<_>) =
                    labels.into_iter().partition(|(label, _)| label == "le");
                let [(_, le)] = &*le else { panic!("one bound: {line}") };
                let bound = if le == "+Inf" { f64::INFINITY } else { le.parse().expect("a bound") };
                let rest: Vec<String> =
                    rest.iter().map(|(label, text)| format!("{label}=\"{text}\"")).collect();
                family.buckets.entry(rest.join(",")).or_default().push((bound, value));
            }
            _ => panic!("not of a {}: {line}", family.kind),
        }
    }

    fn close(&self, family: &Family) {
        let Family { name, kind, buckets } = family;
        assert_eq!(kind == "histogram", !buckets.is_empty(), "{name} has samples of its kind");
        for (labels, buckets) in buckets {
            for pair in buckets.windows(2) {
                assert!(pair[0].0 < pair[1].0, "bounds of {name} ascend: {pair:?}");
                assert!(pair[0].1 <= pair[1].1, "counts of {name} are cumulative: {pair:?}");
            }
            let (bound, all) = buckets.last().copied().expect("at least one");
            assert_eq!(bound, f64::INFINITY, "{name}");
            let count = self.get(&format!("{name}_count{{{labels}}}"));
            assert_eq!(all, count, "{name}");
            assert!(self.samples.contains_key(&format!("{name}_sum{{{labels}}}")), "{name}");
        }
    }

    /// The value of a sample, by its name and labels as they are written.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn get(&self, id: &str) -> f64 {
        *self.samples.get(id).unwrap_or_else(|| panic!("no sample {id} in {:#?}", self.samples))
    }

    /// Whether there is a sample whose name begins with `prefix`.
    #[must_use]
    pub fn any(&self, prefix: &str) -> bool {
        self.samples.keys().any(|id| id.starts_with(prefix))
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with("rma_")
        && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_')
}

fn check_unit(name: &str, kind: &str) {
    match kind {
        "counter" => assert!(name.ends_with("_total"), "{name}"),
        "histogram" => {
            assert!(name.ends_with("_seconds") || name.ends_with("_frames"), "{name}");
        }
        "gauge" => assert!(!name.ends_with("_total"), "{name}"),
        _ => panic!("{name} is a {kind}"),
    }
    let reserved = ["_sum", "_count", "_bucket"];
    assert!(!reserved.iter().any(|suffix| name.ends_with(suffix)), "{name}");
}

/// Returns the labels between the braces, the last one included.
fn labels(text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let mut chars = text.chars();
    loop {
        let label: String = chars.by_ref().take_while(|&it| it != '=').collect();
        assert!(!label.is_empty() && label.bytes().all(|it| it.is_ascii_lowercase()), "{text}");
        assert_eq!(chars.next(), Some('"'), "{text}");
        let mut value = String::new();
        loop {
            match chars.next().expect("the quotation ends") {
                '"' => break,
                '\\' => value.push(match chars.next() {
                    Some('n') => '\n',
                    Some(escaped @ ('\\' | '"')) => escaped,
                    other => panic!("no such escape: {other:?} in {text}"),
                }),
                other => value.push(other),
            }
        }
        labels.push((label, value));
        match chars.next() {
            Some(',') => {}
            Some('}') => break,
            other => panic!("{other:?} after a label in {text}"),
        }
    }
    assert_eq!(chars.next(), None, "{text}");
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_exposition_is_not_read() {
        let good =
            "# HELP rma_a_total Things.\n# TYPE rma_a_total counter\nrma_a_total{b=\"c\"} 1\n";
        assert_eq!(Exposition::parse(good).get("rma_a_total{b=\"c\"}"), 1.0);
        let histogram = |text: &str| {
            format!("# HELP rma_a_seconds Times.\n# TYPE rma_a_seconds histogram\n{text}")
        };
        let sum = "rma_a_seconds_sum{} 1\n";
        for bad in [
            good.trim_end().to_owned(),
            good.repeat(2),
            good.replace("1\n", "1\nrma_a_total{b=\"c\"} 1\n"),
            good.replace("1\n", "x\n"),
            good.replace("\"c\"", "\"\\c\""),
            good.replace("rma_a_total{", "rma_b_total{"),
            good.replace("_total", ""),
            histogram(""),
            histogram(&format!("rma_a_seconds_bucket{{le=\"1\"}} 1\n{sum}rma_a_seconds_count 1\n")),
        ] {
            assert!(std::panic::catch_unwind(|| Exposition::parse(&bad)).is_err(), "{bad}");
        }
    }
}
