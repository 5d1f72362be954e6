//! `rma-bench stat`: what changes at a host with a metrics endpoint, a line a second.

mod change;
mod fetch;
mod scrape;

use core::{net::SocketAddr, time::Duration};

use clap::Args;
use rma_keys::io::{
    addresses::{Addresses, NoAddress},
    clock::now,
};
use rma_xdp::time::Instant;
use rustix::{event::poll, time::Timespec};

pub use self::fetch::StatError;
use self::{
    change::{Change, TimeOfDay, When},
    scrape::Scrape,
};
use crate::{interrupt::Interrupt, line};

/// Arguments of `stat`.
#[derive(Args, Clone, Debug)]
pub struct StatArgs {
    /// The metrics of a host, as its `serve --metrics` or its service tells them. `http://` and
    /// `/metrics` may be left out.
    #[arg(value_name = "ADDRESS:PORT", value_parser = address)]
    address: Addresses,
    /// Seconds between two lines.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: u64,
    /// End after so many lines. Default: go on until Ctrl-C.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print each line as an object of JSON.
    #[arg(long)]
    json: bool,
}

fn address(text: &str) -> Result<Addresses, NoAddress> {
    let text = text.strip_prefix("http://").unwrap_or(text);
    text.strip_suffix("/metrics").unwrap_or(text).parse()
}

/// The counters of a host, and when they were read.
struct Reading {
    scrape: Scrape,
    at: Instant,
}

impl Reading {
    /// From the first of the addresses that answers; the error is that of the last.
    fn take(addresses: &[SocketAddr]) -> Result<Self, StatError> {
        let (last, others) = addresses.split_last().expect("at least one");
        let page = |at: &SocketAddr| fetch::metrics(*at).map(|text| (*at, text));
        let (address, text) =
            others.iter().find_map(|it| page(it).ok()).map_or_else(|| page(last), Ok)?;
        let scrape = Scrape::read(&text).ok_or(StatError::NotMetrics { address })?;
        Ok(Self { scrape, at: now().boot })
    }
}

/// Shows what changes, until interrupted. A host that does not answer any more is told and asked
/// again.
///
/// # Errors
/// If there are no metrics at the start.
pub fn stat(args: &StatArgs, interrupt: &Interrupt) -> Result<(), StatError> {
    interrupt.leaving_at_once(|| watch(args, interrupt))
}

fn watch(args: &StatArgs, interrupt: &Interrupt) -> Result<(), StatError> {
    let addresses = args.address.clone().into_vec();
    let interval = Duration::from_secs(args.interval);
    let mut before = Reading::take(&addresses)?;
    if !args.json {
        // Its words may be long: a line for each part.
        line!("  host      {}", before.scrape.device.replace("; ", "\n            "));
    }
    let mut due = before.at + interval;
    let mut lines = 0;
    while !interrupt.is_set() && args.count.is_none_or(|count| lines < count) {
        sleep_until(due);
        let after = Reading::take(&addresses);
        let unix_ms = now().wall.unix_millis();
        match after {
            Ok(after) => {
                let when = When { unix_ms, passed: after.at.since(before.at) };
                let change = Change::between(&before.scrape, &after.scrape, when);
                match args.json {
                    true => line!("{}", serde_json::to_string(&change).expect("names and numbers")),
                    false => line!("{change}"),
                }
                before = after;
            }
            Err(why) if args.json => {
                line!("{}", serde_json::json!({ "unix_ms": unix_ms, "error": why.to_string() }));
            }
            Err(why) => line!("{}  {why}", TimeOfDay(unix_ms)),
        }
        lines += 1;
        // After a late line no short one follows.
        let now = now().boot;
        let next = due + interval;
        due = if next.since(now) < interval / 2 { now + interval } else { next };
    }
    Ok(())
}

fn sleep_until(due: Instant) {
    while let left = due.since(now().boot)
        && !left.is_zero()
    {
        // A signal ends the program; whatever else wakes it, it sleeps on.
        let left = Timespec::try_from(left).expect("no more than a day");
        let _ = poll(&mut [], Some(&left));
    }
}

#[cfg(test)]
mod tests {
    use rma_xdp::{
        HostConfig, InlineHost, OpStatus, OpType, Permissions, Pid, metrics::MetricsEndpoint,
    };

    use super::*;

    #[test]
    fn ops_of_a_host_are_seen_through_its_endpoint() {
        let address = [127, 83, 84, 65];
        let config = HostConfig::udp(address).with(|it| it.pid = Pid(1));
        let mut host = InlineHost::open(config).unwrap();
        let local = ([127, 0, 0, 1], 0).into();
        let endpoint = MetricsEndpoint::start(local, host.metrics_source().clone()).unwrap();
        let before = Reading::take(&[endpoint.address()]).unwrap();
        assert!(before.scrape.device.contains("UDP"), "{:?}", before.scrape);

        let region = host.register(4096, Permissions::READ).unwrap();
        let grant = host.grant(&region, address.into(), Pid(1), OpType::Read).unwrap();
        let mut portal = host.portal(1).unwrap();
        portal.read(&grant, 0, &region, 64, 64).unwrap();
        let completion = loop {
            host.turn();
            if let Some(completion) = portal.poll() {
                break completion;
            }
        };
        assert_eq!(completion.status, OpStatus::Ok);

        let after = Reading::take(&[endpoint.address()]).unwrap();
        let when = When { unix_ms: 0, passed: after.at.since(before.at) };
        let change = Change::between(&before.scrape, &after.scrape, when);
        assert!(!change.restarted);
        assert_eq!(change.completions, [("OK".to_owned(), 1)].into());
        assert_eq!((change.frames_in, change.frames_out), (2, 2), "a request and its response");
        assert!(change.to_string().contains("issue delay p50 ≤ "), "{change}");
    }

    #[test]
    fn an_address_is_taken_as_serve_prints_it() {
        for text in ["127.0.0.1:9", "http://127.0.0.1:9/metrics"] {
            assert_eq!(address(text).unwrap().first(), ([127, 0, 0, 1], 9).into());
        }
        let error = address("nowhere").unwrap_err().to_string();
        assert!(error.contains("192.0.2.1:7471"), "{error}");
    }
}
