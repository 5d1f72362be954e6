//! READs and WRITEs of any size, as calls of an executor: cut into ops, paced by congestion
//! control, retried.
//!
//! As with a portal's ops, what is written depends on its place alone. Of each READ the first and
//! the last line are compared with what should be there, if nothing is written meanwhile.

use rma_core::executor::{Call, CallId, CallStatus, Piece};
use rma_lab::Pattern;
use rma_xdp::{
    Grant, OpStatus, Permissions, RegisteredRegion, Transfers, ops::ClassOfService,
    transfer::ExecutorConfig,
};

use super::{
    args::{Cc, executor_slots},
    crew::{Crew, seed_of},
    mix::Mix,
    op::LoadOp,
    places::{LINE, Places},
    work::{Due, Ended, Engine, Leaves, Left, Work},
};
use crate::{
    amount::WARM,
    client::{Area, Client},
    error::PairError,
    failures::Failures,
    model::Model,
};

/// Calls of an executor.
#[derive(Debug)]
pub(crate) struct CallWork<'a> {
    engine: Engine<'a>,
    model: Option<&'a Model>,
    pattern: Pattern,
    failures: Failures,
    transfers: Transfers,
    mix: Mix,
    grants: Vec<Grant>,
    size: u64,
    class: ClassOfService,
    places: Places,
    /// The calls under way, with a part of `sink` for each.
    calls: Box<[Option<Issued>]>,
    /// The memory that READs land in.
    sink: RegisteredRegion,
    /// The memory that WRITEs are sent from: one copy of the bytes, wherever they go.
    source: RegisteredRegion,
    /// Calls that failed, to be issued again, and one that was drawn and not taken.
    next: Vec<Drawn>,
}

/// A call that was drawn.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    kind: usize,
    offset: u64,
}

/// The calls to issue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    /// Bytes of each.
    pub(crate) size: u64,
    /// How many a thread has under way at once, at most.
    pub(crate) depth: u32,
    pub(crate) class: ClassOfService,
    /// The settings of congestion control that differ.
    pub(crate) cc: Option<Cc>,
}

/// The part of a thread.
#[derive(Clone, Copy, Debug)]
struct Part {
    area: Area,
    thread: u64,
    slots: u16,
}

/// A call that was submitted.
#[derive(Clone, Copy, Debug)]
struct Issued {
    call: CallId,
    what: Drawn,
    at: Due,
}

impl<'a> CallWork<'a> {
    /// Such calls of a client, one work for each of `areas`, as those of
    /// [`PortalWork::all`](super::portal_work::PortalWork::all).
    ///
    /// # Errors
    /// If slots or memory cannot be had, or the op is not granted.
    pub(crate) fn all(
        client: &'a mut Client,
        mix: &Mix,
        calls: Calls,
        areas: &[Area],
    ) -> Result<Crew<'a, Self>, PairError> {
        let threads = areas.len() as u32;
        let slots = (executor_slots(threads) / threads) as u16;
        let made = areas.iter().zip(0..).map(|(&area, thread)| {
            Self::elsewhere(client, mix, calls, Part { area, thread, slots })
        });
        let mut works = made.collect::<Result<Vec<_>, _>>()?;
        let (mut host, model) = (Some(&mut client.host), client.model.as_ref());
        for work in &mut works {
            work.model = model;
            if areas.len() == 1 {
                work.engine = host.take().map_or(Engine::Elsewhere, Engine::Here);
            }
        }
        Ok(Crew { host, works })
    }

    /// Of one thread, without the host and its model.
    fn elsewhere(
        client: &Client,
        mix: &Mix,
        Calls { size, depth, class, cc }: Calls,
        Part { area, thread, slots }: Part,
    ) -> Result<Self, PairError> {
        let granted = |op: LoadOp| client.grants.get(op.op_type());
        let grants = mix.ops().map(granted).collect::<Result<_, _>>()?;
        let mut config: ExecutorConfig = client.host.executor_config();
        if let Some(cc) = cc {
            cc.set(&mut config.cc);
        }
        let transfers = Transfers::new(client.host.portal(slots)?, config).map_err(other)?;
        let register = |len: u64| client.host.register(len.max(1) as usize, Permissions::NONE);
        let reads = mix.ops().any(|it| it == LoadOp::Read);
        let sink = register(if reads { u64::from(depth) * size } else { 0 })?;
        let sent = if mix.ops().any(LoadOp::writes) { size + WARM } else { 0 };
        let source = register(sent)?;
        let mut bytes = vec![0; WARM as usize];
        Client::source_pattern(client.pattern).fill(0, &mut bytes);
        for offset in (0..sent).step_by(WARM as usize) {
            let len = (sent - offset).min(WARM) as usize;
            source.write(offset, &bytes[..len]).expect("inside");
        }
        Ok(Self {
            engine: Engine::Elsewhere,
            model: None,
            pattern: client.pattern,
            failures: client.failures.of_thread(),
            transfers,
            mix: mix.clone(),
            grants,
            size,
            class,
            places: Places::of_calls(area, size, seed_of(client.pattern, size, thread)),
            calls: vec![None; depth as usize].into(),
            sink,
            source,
            next: Vec::with_capacity(depth as usize + 1),
        })
    }

    /// The place where the first or the last line of what was read is wrong.
    fn wrong(&self, index: usize, offset: u64) -> Option<u64> {
        let len = self.size.min(LINE);
        let mut line = [0; LINE as usize];
        let line = &mut line[..len as usize];
        [0, self.size - len].into_iter().find_map(|at| {
            self.sink.read(index as u64 * self.size + at, line).expect("inside");
            match self.model {
                Some(model) => model.first_difference(offset + at, line),
                None => self.pattern.first_difference(offset + at, line),
            }
        })
    }
}

/// An error of an executor.
fn other(why: impl core::error::Error + Send + Sync + 'static) -> PairError {
    PairError::Other(Box::new(why))
}

impl Work for CallWork<'_> {
    fn issue(&mut self, take: &mut impl FnMut() -> Option<Due>) -> Result<(), PairError> {
        while let Some(index) = self.calls.iter().position(Option::is_none) {
            let what = self.next.pop().unwrap_or_else(|| {
                let kind = self.mix.draw(&mut self.places);
                Drawn { kind, offset: self.places.draw() }
            });
            let Some(at) = take() else {
                self.next.push(what);
                break;
            };
            let Drawn { kind, offset: remote_offset } = what;
            let (local, local_offset) = match self.mix.op(kind) {
                LoadOp::Read => (&self.sink, index as u64 * self.size),
                _ => (&self.source, remote_offset % WARM),
            };
            let (grant, len) = (&self.grants[kind], self.size);
            let pieces = [Piece { grant, remote_offset, local, local_offset, len }];
            let call = Call::of(&pieces).with(|it| it.class = Some(self.class));
            let call = self.transfers.submit(&call).map_err(other)?;
            self.calls[index] = Some(Issued { call, what, at });
        }
        Ok(())
    }

    fn turn(&mut self) -> bool {
        match &mut self.engine {
            Engine::Here(host) => host.drive(&mut self.transfers) > 0,
            Engine::Elsewhere => self.transfers.poll() > 0,
        }
    }

    fn poll(&mut self) -> Option<Ended> {
        let outcome = self.transfers.poll_outcome()?;
        let is_of = |it: &Option<Issued>| it.is_some_and(|it| it.call == outcome.call);
        let index = self.calls.iter().position(is_of).expect("outcomes are of calls that began");
        let Issued { what, at, .. } = self.calls[index].take().expect("it was found");
        let (op, offset) = (self.mix.op(what.kind), what.offset);
        let status = match outcome.status {
            CallStatus::Ok => OpStatus::Ok,
            CallStatus::Failed(status) => status,
            // Silence in one way or another: nothing is cancelled here, or comes after another.
            _ => OpStatus::Timeout,
        };
        let is_ok = status == OpStatus::Ok;
        if !is_ok {
            self.next.push(what);
        } else if op.writes() {
            self.places.wrote(offset);
        }
        let is_compared = is_ok && !self.mix.ops().any(LoadOp::writes);
        let wrong = if is_compared { self.wrong(index, offset) } else { None };
        let retries = outcome.retries;
        let kind = what.kind;
        Some(Ended { kind, at, status, bytes: self.size, retries, wrong })
    }

    fn failures(&mut self) -> &mut Failures {
        &mut self.failures
    }
}

impl Leaves for CallWork<'_> {
    fn finish(self) -> Left {
        let Self { mix, next, places, size, .. } = self;
        let doubtful = next.iter().filter(|it| mix.op(it.kind).writes()).map(|it| it.offset);
        Left { doubtful: doubtful.collect(), places, size }
    }
}
