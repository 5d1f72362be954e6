//! A side's requests to the allocator, for its engine and for its library (S4).
//!
//! The allocator of the program counts, so these work in `rma-figures` only: see
//! [`allocator`](crate::allocator).

use rma_core::crypto::AeadProvider;

use super::{
    AT_ONCE, Settings, Stations, Stepped,
    flat::{MANY, settings},
};
use crate::allocator::Asked;

/// The memory that Z's engine takes.
#[derive(Clone, Copy, Debug)]
pub struct OfEngine {
    /// The requests to the allocator since it was made: to set all connections up, and for a call
    /// on each.
    pub asked: Asked,
    /// Bytes of its tables, with one connection.
    pub tables_of_one: usize,
    /// The same with all of them.
    pub tables_of_all: usize,
}

/// Sets as many connections up as `flat` says there are many of, and has a call on each.
///
/// # Panics
/// If a call does not end well.
#[must_use]
pub fn by_engine(aead: &'static dyn AeadProvider) -> OfEngine {
    let one = Stations::new(settings(1, aead), Stepped::default());
    let mut all = Stations::new(settings(MANY, aead), Stepped::default());
    let every: Vec<u32> = (0..MANY).collect();
    every.chunks(AT_ONCE).for_each(|some| all.calls(some));
    OfEngine {
        asked: all.engine_asked(),
        tables_of_one: one.star().stateless_memory(),
        tables_of_all: all.star().stateless_memory(),
    }
}

/// The memory that Z's portal and library take of the allocator, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct OfLibrary {
    /// For each queue pair that is connected, with its words and its record in the portal.
    pub per_qp: f64,
    /// For each work request that is open, with its guard word in the portal.
    pub per_wr: f64,
    /// For all of so many queue pairs, each with an open RECV; the rings to and from the engine
    /// with them.
    pub all: i64,
    /// Of these, the rings.
    pub rings: usize,
}

/// A portal of so many slots and queue pairs, of which so many are connected, each with an open
/// RECV.
fn library((slots, qps): (u32, u32), of: Settings) -> (i64, usize) {
    let connections = of.connections;
    let settings = Settings { slots, qps, ..of };
    let mut stations = Stations::new(settings, Stepped::default());
    stations.open_recvs(&(0..connections).collect::<Vec<_>>());
    (stations.library_asked().kept(), stations.verbs(0).memory().rings)
}

/// Portals that have room for so many more, of which one is connected and has an open RECV, or all.
pub const MORE: u32 = 10_000;

/// Measures what [`MORE`] queue pairs add to a portal and its library, all connected and with a
/// RECV each, and what as many slots do.
///
/// A portal's rings have a power of two of lines: for posts twice the slots and the queue pairs,
/// for reports the slots, five times the queue pairs and a few. So portals are compared whose rings
/// are of one length: what else there is, is the difference. `is_stateful`: of a stateful side.
///
/// # Panics
/// If the rings are not of one length, or a work request is not taken.
#[must_use]
pub fn by_library(aead: &'static dyn AeadProvider, is_stateful: bool) -> OfLibrary {
    let of = |connections| Settings { is_stateful, ..Settings::of(connections, aead) };
    let each = |portals: [(u32, u32); 2]| {
        let [one, all] = [(portals[0], 1), (portals[1], MORE)]
            .map(|(portal, connections)| library(portal, of(connections)));
        assert_eq!(one.1, all.1, "rings are of one length");
        (all.0 - one.0) as f64 / f64::from(MORE)
    };
    let (all, rings) = library((MORE, MORE), of(MORE));
    OfLibrary {
        per_qp: each([(30_000, MORE), (30_000, 2 * MORE)]),
        per_wr: each([(16_000, MORE), (16_000 + MORE, MORE)]),
        all,
        rings,
    }
}
