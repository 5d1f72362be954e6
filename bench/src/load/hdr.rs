//! Distributions of rows in a file that other programs read: an HdrHistogram interval log, version
//! 2, in nanoseconds. A line for each distribution; its tag names the op, its size and depth.

use core::time::Duration;
use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use hdrhistogram::serialization::{
    V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, Tag},
};

use rma_keys::io::clock;
use rma_xdp::time::Instant;

use super::output::NotWritten;
use crate::latency::Latencies;

/// A log that is being written.
#[derive(Debug)]
pub(crate) struct HdrLog {
    path: PathBuf,
    file: File,
    start: Instant,
}

impl HdrLog {
    /// Begins a log.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub(crate) fn create(path: &Path) -> Result<Self, NotWritten> {
        let not_written = |why| NotWritten::new(path, why);
        let now = clock::now();
        let since_1970 = Duration::from_millis(now.wall.unix_millis().unsigned_abs());
        let mut file = File::create(path).map_err(not_written)?;
        let mut head = IntervalLogWriterBuilder::new();
        head.add_comment("[Histogram log format version 1.3]");
        head.add_comment("[all values in nanoseconds]");
        head.with_start_time(SystemTime::UNIX_EPOCH + since_1970);
        head.begin_log_with(&mut file, &mut V2DeflateSerializer::new()).map_err(not_written)?;
        let columns = "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"";
        writeln!(file, "{columns}").map_err(not_written)?;
        Ok(Self { path: path.to_owned(), file, start: now.boot })
    }

    /// Appends what has been measured until now, for so long.
    ///
    /// # Errors
    /// If the file takes no more.
    pub(crate) fn write(
        &mut self,
        tag: &str,
        latencies: &Latencies,
        elapsed: Duration,
    ) -> Result<(), NotWritten> {
        let until = clock::now().boot.since(self.start);
        let (start, tag) = (until.saturating_sub(elapsed), Tag::new(tag));
        let mut serializer = V2DeflateSerializer::new();
        // It has its head.
        let written = IntervalLogWriterBuilder::new()
            .begin_log_with(&mut self.file, &mut serializer)
            .map_err(io::Error::other)
            .and_then(|mut it| {
                let line = it.write_histogram(latencies.histogram(), start, elapsed, tag);
                line.map_err(io::Error::other)
            });
        written.map_err(|why| NotWritten::new(&self.path, why))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hdrhistogram::{
        Histogram,
        serialization::{
            Deserializer,
            interval_log::{IntervalLogIterator, LogEntry},
        },
    };

    use super::*;

    #[test]
    fn a_log_is_read_back_to_the_same_percentiles() {
        let path = std::env::temp_dir().join(format!("rma-hdr-{}.log", std::process::id()));
        let mut log = HdrLog::create(&path).unwrap();
        let mut latencies = Latencies::new();
        (1..=10_000).for_each(|micros| latencies.record(Duration::from_micros(micros)));
        log.write("READ-64-1-response", &latencies, Duration::from_secs(1)).unwrap();
        log.write("READ-64-1-service", &Latencies::new(), Duration::from_secs(1)).unwrap();
        let text = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let lines: Vec<_> = IntervalLogIterator::new(&text).collect();
        let mut found = lines.into_iter().filter_map(|it| match it {
            Ok(LogEntry::Interval(interval)) => Some(interval),
            _ => None,
        });
        let first = found.next().unwrap();
        assert_eq!(first.tag().unwrap().as_str(), "READ-64-1-response");
        let encoded = base64(first.encoded_histogram());
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut &*encoded).unwrap();
        for quantile in [0.5, 0.99, 0.9999] {
            let micros = read.value_at_quantile(quantile) as f64 / 1e3;
            assert_eq!(micros, latencies.quantile_us(quantile));
        }
        assert_eq!(read.len(), 10_000);
        assert!(found.next().is_some());
    }

    fn base64(text: &str) -> Vec<u8> {
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let value = |it: u8| digits.iter().position(|&digit| digit == it).unwrap_or(0) as u32;
        let bytes = text.as_bytes().chunks(4).flat_map(|four| {
            let word = four.iter().fold(0, |word, &it| word << 6 | value(it));
            word.to_be_bytes()[1..].to_vec()
        });
        bytes.collect()
    }
}
