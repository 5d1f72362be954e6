//! Tests of several modules together: policies as they are written, and the whole service.

mod audit;
mod client;
mod faults;
#[cfg(feature = "tls")]
mod keeper;
mod keyed;
mod policy;
mod recorded;
#[cfg(feature = "tls")]
mod remote;
mod rotation;
mod rotator;
mod service;

use core::time::Duration;

use rma_core::{addr::LocalAddresses, region::RegionId, time::Instant};

use crate::{
    catalog::{Region, Term},
    name::RegionName,
    peer::{Peer, Serial},
    secret::RegionSecret,
    time::{Now, WallTime},
};

/// 2026-11-23, noon.
const NOON_MS: i64 = 1_795_435_200_000;

/// So long after the start of a test.
fn after(seconds: u64) -> Now {
    let since = Duration::from_secs(seconds);
    Now {
        boot: Instant::ZERO + since,
        wall: WallTime::from_unix_millis(NOON_MS + since.as_millis() as i64),
    }
}

fn at(seconds: u64) -> Instant {
    after(seconds).boot
}

fn name(text: &str) -> RegionName {
    text.parse().unwrap()
}

/// A client of the key-value cache at 192.0.2.1.
fn client() -> Peer {
    Peer {
        identity: "spiffe://example.org/kv/client/7".parse().unwrap(),
        serial: Serial::new(&[0x0a, 0x1b]).unwrap(),
        not_after: WallTime::from_unix_millis(NOON_MS + 48 * 3_600_000),
        address: "192.0.2.1".parse().unwrap(),
    }
}

fn secret(octet: u8) -> RegionSecret {
    RegionSecret::new(&mut [octet; 16])
}

fn addresses(texts: &[&str]) -> LocalAddresses {
    let mut addresses = LocalAddresses::default();
    for text in texts {
        addresses.insert(text.parse().unwrap());
    }
    addresses
}

/// A region of 4096 bytes at 192.0.2.2.
fn region() -> Region {
    Region { responders: addresses(&["192.0.2.2"]), id: RegionId::from_bits(5), len: 4096 }
}

const fn term(announce_at: Instant, ends_at: Instant) -> Term {
    Term { announce_at, ends_at }
}
