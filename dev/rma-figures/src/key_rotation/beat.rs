//! An owner whose region's key changes at a beat, each next key handed out a whole beat before its
//! turn.
//!
//! That is more often than [`Rotation`](rma_keys::rotation::Rotation) lets a key change; so this
//! owner announces and installs by hand, as a control plane of its own would. What it keeps of a
//! rotation's invariants: a key is in the catalog before its host has it, and until it is told.

use core::time::Duration;

use rma_core::time::{Clock, Instant};
use rma_keys::{
    catalog::{Region, Term},
    epoch::Epoch,
    io::clock,
    name::RegionName,
    time::Now,
};
use rma_xdp::{
    HostAddr, InlineHost, RegionKey, RegisteredRegion, crypto::random_region_key, time::TscClock,
};

use super::{
    desk::Swapped,
    owner::{Served, secret},
    scene::LOOKS_PER_INSTALL,
};

/// The owner of one region.
pub(super) struct Beaten {
    pub(super) served: Served,
    region: RegisteredRegion,
    place: Region,
    name: RegionName,
    /// The clients' clock.
    clock: TscClock,
    beat: Option<Beat>,
}

/// A key whose turn comes.
struct Beat {
    period: Duration,
    next: (Epoch, RegionKey),
    swap_at: Instant,
    /// From when to when the host has installed it, if the service has not been told.
    installed: Option<(u64, u64)>,
    /// Looks since then.
    looks: u32,
}

impl Beaten {
    /// The owner of `region`, which is not published.
    pub(super) fn new(
        served: Served,
        (name, region): (RegionName, RegisteredRegion),
        responder: HostAddr,
        clock: TscClock,
    ) -> Self {
        let place = Region { responders: responder.into(), id: region.id(), len: region.len() };
        Self { served, region, place, name, clock, beat: None }
    }

    /// Puts the region into the catalog anew, with the key after its first one if that is to
    /// change.
    pub(super) fn publish(&mut self, host: &InlineHost, period: Option<Duration>) {
        let (key, now) = (fresh(), clock::now());
        host.rekey(&self.region, key).expect("the region is registered");
        let (name, place) = (self.name.clone(), self.place);
        let ends_at = now.boot + period.unwrap_or(Duration::from_secs(3600));
        let announce_at = if period.is_some() { now.boot } else { ends_at };
        let term = Term { announce_at, ends_at };
        self.served.lock().change(now, |service| {
            let published = service.publish(now, name, place, &secret(&key), term);
            ((), vec![published.expect("there is room").1])
        });
        self.beat = period.map(|period| self.announce(now, period));
    }

    /// The key stays from now on.
    pub(super) fn rest(&mut self) {
        self.beat = None;
    }

    /// Does the next due task, and one only, because the engine of `host` waits meanwhile.
    pub(super) fn turn(&mut self, now: Now, host: &InlineHost) -> Option<Swapped> {
        let Some(beat) = self.beat.as_mut().filter(|it| it.swap_at <= now.boot) else {
            self.served.turn(now);
            return None;
        };
        let Some(at) = beat.installed else {
            let from = self.clock.now().as_nanos();
            host.rekey(&self.region, beat.next.1).expect("the region is registered");
            beat.installed = Some((from, self.clock.now().as_nanos()));
            return None;
        };
        beat.looks += 1;
        if beat.looks <= LOOKS_PER_INSTALL {
            self.served.turn(now);
            return None;
        }
        let (period, epoch) = (beat.period, beat.next.0);
        self.served.lock().change(now, |service| {
            let installed = service.install(now, &self.name, epoch);
            ((), vec![installed.expect("it is announced")])
        });
        self.beat = Some(self.announce(now, period));
        Some(Swapped { epoch: epoch.number, at: Some(at) })
    }

    /// Announces the next key, of which the turn comes in a period.
    fn announce(&self, now: Now, period: Duration) -> Beat {
        let (key, swap_at) = (fresh(), now.boot + period);
        let term = Term { announce_at: swap_at, ends_at: swap_at + period };
        let epoch = self.served.lock().change(now, |service| {
            let announced = service.announce(now, &self.name, &secret(&key), swap_at, term);
            let (epoch, event) = announced.expect("none is announced");
            (epoch, vec![event])
        });
        Beat { period, next: (epoch, key), swap_at, installed: None, looks: 0 }
    }
}

fn fresh() -> RegionKey {
    random_region_key().expect("the system has randomness")
}
