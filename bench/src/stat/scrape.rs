//! The counters that `stat` shows of a host, read from Prometheus' text format, version 0.0.4.
//!
//! Samples of one name are added up, so hosts that a service tells apart by a label of its own are
//! shown as one. Lines that are not understood are other people's.

use std::collections::BTreeMap;

/// Counts by a name.
pub(super) type Counts = BTreeMap<String, u64>;

/// The counters of a host at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scrape {
    /// The device, in the host's words.
    pub(super) device: String,
    /// Ops that ended, by status.
    pub(super) completions: Counts,
    /// Dropped frames and packets, by reason.
    pub(super) dropped: Counts,
    /// All else that is counted: fields of [`Change`](super::change::Change), by their names.
    pub(super) counts: Counts,
    /// `issue_delay` of all types of op together.
    pub(super) issue_delay: Buckets,
    /// `total_delay` of all types of op together.
    pub(super) total_delay: Buckets,
}

/// A histogram: how many delays were at most so many nanoseconds; `u64::MAX`: how many there were.
pub(super) type Buckets = BTreeMap<u64, u64>;

impl Scrape {
    /// Reads a page; `None` if it has no metrics of 1RMA.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut all = Self::default();
        let mut is_loss = false;
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                is_loss = help.contains("Dropped: ") || help.contains(" dropped ");
            } else if let Some(sample) = Sample::read(line) {
                all.add(&sample, is_loss);
            }
        }
        all.counts.contains_key("frames_in").then_some(all)
    }

    fn add(&mut self, sample: &Sample<'_>, is_loss: bool) {
        let label = |name| sample.labels.get(name).cloned().unwrap_or_default();
        let (map, name) = match (sample.name, &*label("direction")) {
            ("rma_device_info", _) => return self.device = label("device"),
            ("rma_issue_delay_seconds_bucket", _) => {
                return add_to_bucket(&mut self.issue_delay, sample);
            }
            ("rma_total_delay_seconds_bucket", _) => {
                return add_to_bucket(&mut self.total_delay, sample);
            }
            ("rma_ops_completed_total", _) => (&mut self.completions, label("status")),
            ("rma_frames_dropped_total", _) => (&mut self.dropped, label("reason")),
            ("rma_frames_received_total", _) => (&mut self.counts, "frames_in".into()),
            ("rma_frames_sent_total", _) => (&mut self.counts, "frames_out".into()),
            ("rma_packet_frames_count", "received") => (&mut self.counts, "packets_in".into()),
            ("rma_packet_frames_count", "sent") => (&mut self.counts, "packets_out".into()),
            (name, _) if is_loss => {
                // Of the device or the kernel: rma_udp_rx_truncated_total.
                let name = name.strip_prefix("rma_").and_then(|it| it.strip_suffix("_total"));
                let Some(reason) = name else { return };
                (&mut self.dropped, reason.to_owned())
            }
            _ => return,
        };
        let count = map.entry(name).or_default();
        *count = count.saturating_add(sample.value as u64);
    }
}

fn add_to_bucket(buckets: &mut Buckets, sample: &Sample<'_>) {
    let Some(bound) = sample.labels.get("le").and_then(|le| le.parse::<f64>().ok()) else { return };
    // Infinity becomes the largest.
    let count = buckets.entry((bound * 1e9).round() as u64).or_default();
    *count = count.saturating_add(sample.value as u64);
}

/// A line of the format: `name{label="text",…} value`, perhaps with a time behind it.
struct Sample<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, String>,
    value: f64,
}

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
        let mut labels = BTreeMap::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while !rest.starts_with('}') {
                let (label, text) = rest.split_once("=\"")?;
                let mut value = String::new();
                let mut chars = text.chars();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' => value.push(match chars.next()? {
                            'n' => '\n',
                            other => other,
                        }),
                        other => value.push(other),
                    }
                }
                // Somebody else's words: none of them moves a cursor.
                let value = value.replace(char::is_control, " ");
                labels.insert(label.trim(), value);
                rest = chars.as_str().trim_start_matches([',', ' ']);
            }
            rest = &rest[1..];
        }
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_read_with_whatever_its_labels_hold() {
        let sample = Sample::read("a_b{c=\"x\\\"} 7\\n\\\\\",d=\"\", } 1.5 1700000000").unwrap();
        assert_eq!((sample.name, sample.value), ("a_b", 1.5));
        assert_eq!((&*sample.labels["c"], &*sample.labels["d"]), ("x\"} 7 \\", ""));
        assert_eq!(Sample::read("a 3").unwrap().value, 3.0);
        for bad in ["", "a", "a{", "a{b=\"c\"}", "a{b=\"c", "a{b} 1", "a x", "# TYPE a counter"] {
            assert!(Sample::read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn types_of_op_are_added_up_and_losses_are_known_by_their_help() {
        let text = "# HELP rma_frames_received_total Frames.\nrma_frames_received_total 3\n\
                    rma_issue_delay_seconds_bucket{op=\"READ\",le=\"0.000000128\"} 1\n\
                    rma_issue_delay_seconds_bucket{op=\"WRITE\",le=\"0.000000128\"} 2\n\
                    rma_issue_delay_seconds_bucket{op=\"WRITE\",le=\"+Inf\"} 4\n\
                    # HELP rma_udp_rx_truncated_total Dropped: too long.\nrma_udp_rx_truncated_total 5\n\
                    # HELP rma_udp_tx_packets_total Packets.\nrma_udp_tx_packets_total 6\nhttp_requests 7\n";
        let scrape = Scrape::read(text).unwrap();
        assert_eq!(scrape.issue_delay, [(128, 3), (u64::MAX, 4)].into());
        assert_eq!(scrape.dropped, [("udp_rx_truncated".to_owned(), 5)].into());
        assert_eq!(scrape.counts, [("frames_in".to_owned(), 3)].into());
    }

    #[test]
    fn a_page_of_another_program_is_not_read() {
        for text in ["", "<html>", "# HELP up Up.\n# TYPE up gauge\nup 1\n"] {
            assert!(Scrape::read(text).is_none(), "{text}");
        }
    }
}
