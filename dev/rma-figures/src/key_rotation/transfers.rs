//! Large reads while the key of what they read changes again and again, the next key handed out
//! before: how much gets through, over reads of a region whose key stays.
//!
//! The application, its [`KeyedExecutor`], its inline engine and its connection to the service
//! share one thread; the owner's engine and service have another. A round of either kind is on a
//! region that is published anew, with a cache of its own: only what is needed is done in each.

use core::time::Duration;

use rma_bench::{client::Client, error::PairError, interrupt::Interrupt, pair::Place};
use rma_core::{
    executor::{CallStatus, CommandExecutor, RetryPolicy},
    time::Clock,
};
use rma_keys::{
    io::clock,
    keyed::{KeyedCall, KeyedExecutor, KeyedPiece, KeyedStatus},
    name::RegionName,
    ring::Holder,
    tls::directory::Directory,
};
use rma_xdp::{InlineHost, OpType, Permissions, RegisteredRegion};

use super::{
    beat::Beaten,
    desk::Mailbox,
    keys::Keys,
    owner::Served,
    scene::{TURNS_PER_LOOK, open},
};
use crate::error::TransferError;
use crate::{
    key_service::Identities,
    transfers::{LARGE, PIPELINED},
};

/// How often the key changes. A call fails if its thread stands still while the key changes twice.
pub const PERIOD: Duration = Duration::from_millis(50);

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Rounds of each kind.
    pub rounds: usize,
    /// How often the key changes.
    pub period: Duration,
}

/// How long a round lasts.
const ROUND: Duration = Duration::from_millis(1500);

/// Command slots of the executor's portal.
const SLOTS: u16 = 256;

/// The bytes that a round moved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    /// Payload, in bytes a second.
    pub bytes_per_second: f64,
    /// Calls that ended otherwise than OK.
    pub failed: u64,
    /// How often a call went on under another key.
    pub rekeyed: u64,
    /// Requests to the service.
    pub fetches: u64,
}

/// Rounds of both kinds, in turns: with a key that stays, and with one that changes.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// Each round with a key that stays.
    pub steady: Vec<Moved>,
    /// Each round with a key that changes.
    pub rotated: Vec<Moved>,
    /// Changes of the key.
    pub rotations: u64,
}

/// The owner's task in the next round, and its result in the last.
#[derive(Debug, Default)]
struct Desk {
    /// Publish the region anew, and change its key so often, or never.
    begin: Mailbox<Option<Duration>>,
    /// It is published.
    begun: Mailbox<()>,
    /// Leave the key as it is.
    end: Mailbox<()>,
    /// How often it has changed.
    ended: Mailbox<u64>,
}

/// The owner, as this measurement drives it.
struct Owner {
    owner: Beaten,
    rotations: u64,
    turns: u32,
}

impl Owner {
    fn turn(&mut self, host: &InlineHost, desk: &Desk) {
        self.turns = self.turns.wrapping_add(1);
        if !self.turns.is_multiple_of(TURNS_PER_LOOK) {
            return;
        }
        if let Some(period) = desk.begin.take() {
            self.owner.publish(host, period);
            desk.begun.put(());
        } else if desk.end.take().is_some() {
            self.owner.rest();
            desk.ended.put(core::mem::take(&mut self.rotations));
        } else if self.owner.turn(clock::now(), host).is_some() {
            self.rotations += 1;
        }
    }
}

/// Reads for so many rounds of each kind, at this UDP port.
///
/// # Errors
/// If hosts, slots, sockets or keys cannot be had.
///
/// # Panics
/// If there is no directory for certificates.
pub fn measure(
    place: Place<'_>,
    port: u16,
    Amount { rounds, period }: Amount,
    interrupt: &Interrupt,
) -> Result<Rounds, PairError> {
    let mut pair = open(place, port)?;
    let identities = Identities::new();
    let one = *pair.client.grants.any();
    let region = pair.server.register((PIPELINED * LARGE) as usize, Permissions::READ)?;
    let name: RegionName = "kv/values".parse().expect("a name");
    let served = Served::open(place, one.responder, &identities)?;
    let (address, desk) = (served.turns.address(), &Desk::default());
    let (published, clock) = ((name.clone(), region), pair.client.clock.clone());
    let owner = Beaten::new(served, published, one.responder, clock);
    let mut owner = Owner { owner, rotations: 0, turns: 0 };
    let (_, credentials) = Directory::open(&identities.client).expect("they are in order");
    let holder = Holder { initiators: one.initiator.into(), pid: one.pid };
    pair.run_beside(
        move |host, _| owner.turn(host, desk),
        |client: &mut Client| {
            let _inside = place.lab().map(|lab| lab.a().enter()).transpose()?;
            let keys = Keys::open(&credentials, address, name.clone(), (holder, 0))?;
            let config = client.host.executor_config();
            let (portal, lease) = client.host.portal(SLOTS)?.into_parts();
            let executor = CommandExecutor::new(portal, config).map_err(TransferError::from)?;
            let local = client.host.register((PIPELINED * LARGE) as usize, Permissions::NONE)?;
            let executor = KeyedExecutor::new(executor);
            let mut reader = Reader { client, keys, executor, local, desk, turns: 0 };
            let mut all = Rounds::default();
            // The first of each kind warms up.
            for round in 0..=rounds as u64 {
                for period in [None, Some(period)] {
                    reader.keys.turn_to(name.clone(), (holder, round));
                    let (moved, rotations) = reader.round(period, interrupt)?;
                    match (round, period) {
                        (0, _) => {}
                        (_, None) => all.steady.push(moved),
                        (_, Some(_)) => {
                            all.rotated.push(moved);
                            all.rotations += rotations;
                        }
                    }
                }
            }
            drop(reader);
            drop(lease);
            Ok(all)
        },
    )
}

/// The client that reads.
struct Reader<'a> {
    client: &'a mut Client,
    keys: Keys,
    executor: KeyedExecutor,
    local: RegisteredRegion,
    desk: &'a Desk,
    turns: u32,
}

impl Reader<'_> {
    /// One round, from when its first keys are there. Returns how often the key has changed as
    /// well.
    fn round(
        &mut self,
        period: Option<Duration>,
        interrupt: &Interrupt,
    ) -> Result<(Moved, u64), PairError> {
        self.desk.begin.put(period);
        while self.desk.begun.take().is_none() {
            self.client.host.turn();
        }
        while self.keys.grant(self.client.clock.now())?.is_none() {
            self.look(interrupt)?;
        }
        let mut moved = Moved::default();
        let (mut submitted, mut ended, mut bytes) = (0, 0, 0);
        let start = self.client.clock.now();
        loop {
            let now = self.client.clock.now();
            let goes_on = now.since(start) < ROUND;
            if goes_on && submitted - ended < PIPELINED {
                let call = self.call(submitted);
                self.executor.submit(now, &mut self.keys.cache, call);
                submitted += 1;
            }
            self.look(interrupt)?;
            self.executor.poll(now, &mut self.keys.cache);
            while let Some(outcome) = self.executor.poll_outcome() {
                ended += 1;
                bytes += outcome.bytes_done;
                moved.rekeyed += u64::from(outcome.rekeyed);
                moved.failed += u64::from(outcome.status != KeyedStatus::Ended(CallStatus::Ok));
            }
            if !goes_on && submitted == ended {
                break;
            }
        }
        moved.bytes_per_second = bytes as f64 / self.client.clock.now().since(start).as_secs_f64();
        moved.fetches = self.keys.cache.counters().fetches;
        self.desk.end.put(());
        loop {
            self.client.host.turn();
            if let Some(rotations) = self.desk.ended.take() {
                return Ok((moved, rotations));
            }
        }
    }

    fn call(&self, index: u64) -> KeyedCall {
        let offset = index % PIPELINED * LARGE;
        let piece = KeyedPiece {
            ring: self.keys.ring,
            remote_offset: offset,
            local: self.local.clone(),
            local_offset: offset,
            len: LARGE,
        };
        KeyedCall {
            op_type: OpType::Read,
            pieces: vec![piece],
            class: None,
            retry: RetryPolicy::DEFAULT,
            deadline: None,
        }
    }

    /// Turns the engine, and now and then the connection to the service, if something is asked.
    fn look(&mut self, interrupt: &Interrupt) -> Result<(), PairError> {
        self.client.host.turn();
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS_PER_LOOK) && self.keys.ask(self.client.clock.now()) {
            self.keys.turn(|| self.client.clock.now())?;
        }
        if self.turns.is_multiple_of(4096) && interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_go_on_under_the_next_key_and_none_fails() {
        let port = 15_000 + std::process::id() as u16 % 5_000;
        // Longer than a thread waits for a busy machine.
        let amount = Amount { rounds: 1, period: Duration::from_millis(400) };
        let rounds = measure(Place::Loopback, port, amount, &Interrupt::default()).unwrap();
        let (steady, rotated) = (rounds.steady[0], rounds.rotated[0]);
        assert_eq!((steady.failed, rotated.failed, steady.rekeyed), (0, 0, 0), "{rounds:?}");
        assert!(steady.bytes_per_second > 0.0 && rotated.bytes_per_second > 0.0);
        assert!(rounds.rotations > 0 && rotated.rekeyed > 0, "{rounds:?}");
        assert_eq!(steady.fetches, 1);
    }
}
