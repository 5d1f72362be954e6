//! `rma-bench verify`: verified reads and writes of a host that serves, through whatever happens
//! meanwhile.
//!
//! It measures nothing, and an op that fails is not the end of it: rounds of random ops go on, each
//! compared with a model of the region, while a server is killed and started again, a link goes
//! down and up, a key is rotated. It takes up a grant file that somebody replaces under its name,
//! or what the key service gives when keys are refused; the region must hold what it held before
//! then, or, with a new file or a service that was started again, the pattern of a fresh one:
//! nothing else.
//! It gives up when nothing has succeeded for as long as `--patience`. On Ctrl-C it says what was
//! verified, and restores the pattern, unless the server does not answer for a moment; a second one
//! ends that, and it says what it leaves.
//!
//! Where the server gives lanes it writes to its own alone: it asks for one again when the session
//! was lost, be it by a restart, and reads only as long as it has none.
//!
//! Two writers at once would each find the other's bytes.

use std::{collections::HashMap, path::Path, time::Duration};

use clap::Args;
use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_keys::epoch::Epoch;
use rma_lab::Pattern;
use rma_xdp::{
    Grant, OpStatus, OpType, RegionKey, crypto::random_region_key, ops::CommandSlotId, time::Clock,
};

use crate::{
    bytes::Bytes,
    client::{Area, Client, Span, overlap},
    error::{PairError, hint},
    grant_file::{GrantFile, GrantFileError},
    grants::Grants,
    interrupt::Interrupt,
    keys::{KeysError, RegionKeys, Service},
    model::Model,
    remote::{Remote, RemoteArgs, Wanted, open_granted, open_named},
    serve::{ServeError, Tuning, tell_ways},
    session::{Lane, Session},
};

mod events;

use events::{Event, Found, Round, Totals};

/// The arguments of `verify`.
#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Number of rounds. Default: run until Ctrl-C.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Random ops in a round, reads and writes mixed. After each round the whole span is read back.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    ops: u64,
    /// Use this many bytes: a lane of them, where the server has lanes, or else those at the
    /// region's beginning.
    #[arg(long, default_value = "1M", value_name = "BYTES")]
    span: Bytes,
    /// Rotate the region's key in every round by the Rekey op, which `serve --op` must grant. Each
    /// rotation rewrites the grant file. With a key service this is not needed: it rotates keys
    /// itself.
    #[arg(long, conflicts_with = "service")]
    rekey: bool,
    /// Give up when no op has succeeded for this many seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    patience: u64,
    /// Print lines of JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// The most that is modelled in memory.
const SPAN_MAX: u64 = 64 << 20;

/// Failures in a row after which it is said that a server does not answer, or refuses. Fewer: a key
/// that somebody rotates is said to be a failure, as all that is in flight is refused. More: it is
/// said later.
const FAILURES_SAID: u32 = 20;

/// How long nothing may succeed while the pattern is restored after Ctrl-C.
const HASTE: Duration = Duration::from_secs(2);

/// An op to be issued.
#[derive(Clone, Copy, Debug)]
struct Work {
    kind: Kind,
    span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Checks each byte.
    Read,
    /// Reads into [`Run::seen`], for a comparison of everything.
    Look,
    /// Writes new random bytes.
    Write,
    /// Writes the pattern.
    Restore,
}

impl Kind {
    const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Restore)
    }
}

/// A rotation under way.
#[derive(Clone, Copy, Debug)]
struct Rekeying {
    key: RegionKey,
    /// The op, if it is in flight.
    slot: Option<CommandSlotId>,
    /// Whether an op for it has ended such that the key may be installed and may not.
    unsure: bool,
}

/// The source of the first grants, and of later ones.
enum Source<'a> {
    /// A file, as it was read or written last. The grants of now may be newer.
    File(&'a Path, GrantFile),
    /// The key service, and what to ask it for a session with.
    Service(RegionKeys, Service),
}

/// The grants that ops go by from now on.
struct Renewed {
    grants: Grants,
    pattern: Pattern,
    /// Whether it may be of another region than before.
    is_another: bool,
}

impl Source<'_> {
    /// Returns the epoch of the key that ops are issued under, if it has a name.
    const fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::File(..) => None,
            Self::Service(keys, _) => Some(keys.epoch()),
        }
    }

    /// Looks for others than the grants of `client`.
    fn look(&mut self, client: &Client) -> Option<Renewed> {
        let (old, pattern) = (client.grants.any(), client.pattern);
        let is_same = |new: &Grant| {
            (old.initiator, old.pid, old.region_len) == (new.initiator, new.pid, new.region_len)
        };
        match self {
            Self::File(path, was) => {
                // One that is not there, or is none, may yet be replaced by one that is: patience
                // has its end.
                let file = GrantFile::load(path).ok()?;
                if file == *was || file.port != was.port || !is_same(file.grants.any()) {
                    return None;
                }
                *was = file;
                let pattern = Pattern::new(file.seed);
                Some(Renewed { grants: file.grants, pattern, is_another: true })
            }
            Self::Service(keys, _) => {
                let was = keys.epoch();
                keys.look();
                let (grants, new) = (*keys.grants(), keys.grants().any());
                if keys.epoch() == was || !is_same(new) {
                    return None;
                }
                let is_another = keys.epoch().life != was.life
                    || (new.responder, new.region) != (old.responder, old.region);
                Some(Renewed { grants, pattern, is_another })
            }
        }
    }
}

/// Runs rounds of verified reads and writes.
///
/// # Errors
/// If something could not be set up; on a wrong byte; if nothing succeeds for too long.
pub fn verify(args: &VerifyArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    let RemoteArgs { host, keys, grant } = &args.remote;
    let patience = Duration::from_secs(args.patience);
    let op_types = &[OpType::Read, OpType::Write][..];
    let (tuning, quiet) = (Tuning::default(), args.json);
    let wanted = Wanted { size: 1, op_types, patience, tuning, quiet };
    let open = || match keys.service()? {
        Some(service) => {
            let (client, remote, keys) = open_named(host, (keys, &service), wanted)?;
            Ok::<_, ServeError>((client, remote, Source::Service(keys, service)))
        }
        None => {
            let file = GrantFile::load(grant)?;
            let (client, remote) = open_granted(host, (grant, file), wanted)?;
            Ok((client, remote, Source::File(grant, file)))
        }
    };
    let (mut client, mut remote, source) = interrupt.leaving_at_once(open)?;
    if args.json {
        let (device, fallbacks) = (client.host.info().to_string(), client.host.fallbacks());
        Event::Open { device, fallbacks }.say(true);
    }
    for op_type in [OpType::Read, OpType::Write] {
        client.grants.get(op_type)?;
    }
    if args.rekey {
        client.grants.get(OpType::Rekey)?;
    }
    client.set_area(area(&mut remote, &client, args.span.0.min(SPAN_MAX))?);
    let mut run = Run::new(args, client, remote, source, interrupt);
    let result = run.all();
    if !args.json {
        tell_ways(&run.client.host);
    }
    // Whatever went wrong: the old grants are of no use any longer.
    run.save()?;
    if let Err(ServeError::Pair(PairError::Failing { .. })) = &result
        && !run.restoring
    {
        run.say(&Event::Verified(&run.totals));
    }
    let Run { source, mut remote, .. } = run;
    result.map_err(|error| match (error, &source) {
        (ServeError::Pair(error @ PairError::Failing { .. }), Source::Service(keys, _)) => {
            keys.hindrance(patience).map_or_else(|| remote.explain(error), ServeError::from)
        }
        (ServeError::Pair(error), _) => remote.explain(error),
        (other, _) => other,
    })
}

/// A run of it.
struct Run<'a> {
    args: &'a VerifyArgs,
    client: Client,
    remote: Remote,
    source: Source<'a>,
    /// Whether it writes to a lane, and whether that was lost.
    has_lanes: bool,
    lacks_lane: bool,
    /// Whether it has another one since it was last told, under the same grant.
    has_other_lane: bool,
    random: StdRng,
    /// The expected content of the region.
    model: Model,
    /// The expected content of a fresh region: from a new grant until everything has been compared.
    fresh: Option<Model>,
    /// How often it was not known any more what the region holds.
    forgotten: u64,
    /// The content that was found in it.
    seen: Vec<u8>,
    /// With the key that it was issued under.
    in_flight: HashMap<CommandSlotId, (Work, Option<Epoch>)>,
    /// Ops that failed. They come first, and whatever overlaps with them waits: of a write that
    /// failed nobody knows how much has landed.
    again: Vec<Work>,
    rekeying: Option<Rekeying>,
    /// Ops in a row that failed.
    failures: u32,
    /// When an op last succeeded.
    succeeded_at: u64,
    /// Writes that were issued, for bytes of their own for each.
    written: u64,
    round: Round,
    totals: Totals,
    interrupt: &'a Interrupt,
    /// Whether what is left to do is to restore the pattern.
    restoring: bool,
    /// Whether somebody wanted it to end.
    was_stopped: bool,
    /// While the pattern is restored: a flag that somebody wants that to end too.
    second: Option<Interrupt>,
    /// Writes that did not end well and were not issued again: some of their bytes may be there.
    doubtful: Vec<Span>,
}

impl<'a> Run<'a> {
    fn new(
        args: &'a VerifyArgs,
        client: Client,
        remote: Remote,
        source: Source<'a>,
        interrupt: &'a Interrupt,
    ) -> Self {
        let succeeded_at = client.clock.now().as_nanos();
        Self {
            args,
            random: StdRng::seed_from_u64(client.pattern.seed()),
            model: fresh_model(&client),
            fresh: None,
            forgotten: 0,
            seen: Vec::new(),
            in_flight: HashMap::new(),
            again: Vec::new(),
            rekeying: None,
            failures: 0,
            succeeded_at,
            written: 0,
            round: Round::default(),
            totals: Totals::default(),
            interrupt,
            restoring: false,
            was_stopped: false,
            second: None,
            doubtful: Vec::new(),
            client,
            has_lanes: remote.session.is_some(),
            remote,
            source,
            lacks_lane: false,
            has_other_lane: false,
        }
    }

    /// Whether somebody wants the rounds to end.
    fn stops(&self) -> bool {
        !self.restoring && self.interrupt.is_set()
    }

    fn all(&mut self) -> Result<(), ServeError> {
        self.compare()?;
        let rounds = self.args.rounds.unwrap_or(u64::MAX);
        while self.totals.rounds < rounds && !self.stops() {
            self.round = Round { round: self.totals.rounds + 1, ..Round::default() };
            if self.args.rekey {
                let key = random_region_key()?;
                self.rekeying = Some(Rekeying { key, slot: None, unsure: false });
            }
            let mut left = self.args.ops;
            self.look_for_the_lane();
            while left > 0 && !self.stops() {
                self.drive(&mut |run| {
                    // Under a new grant the region is looked at first.
                    if run.fresh.is_some() || run.stops() {
                        return None;
                    }
                    left = left.checked_sub(1)?;
                    Some(run.random_work())
                })?;
                self.compare()?;
            }
            self.end_round();
            self.save()?;
        }
        self.was_stopped = self.stops();
        self.restoring = true;
        let was_stopped = self.was_stopped;
        if was_stopped {
            // Now, as it may not come back to that.
            self.say(&Event::Verified(&self.totals));
            self.succeeded_at = self.client.clock.now().as_nanos();
        }
        let restored = self.restore_unless_interrupted();
        if !was_stopped && restored.is_ok() {
            self.say(&Event::Verified(&self.totals));
        }
        let Area { offset, len } = self.client.area();
        let (totals, restored_all) = (&self.totals, restored.is_ok());
        self.say(&Event::End { totals, restored: restored_all, area: [offset, offset + len] });
        Ok(restored?)
    }

    fn end_round(&mut self) {
        let Round { reads, writes, bytes, compared, rekeys, .. } = self.round;
        self.totals.rounds += 1;
        self.totals.reads += reads;
        self.totals.writes += writes;
        self.totals.bytes += bytes;
        self.totals.compared += compared;
        self.totals.rekeys += rekeys;
        // One that was cut short has not been compared.
        if !self.stops() {
            self.say(&Event::Round(self.round));
        }
    }

    /// Writes the grants of now into the grant file, if they are others.
    fn save(&mut self) -> Result<(), GrantFileError> {
        let Source::File(path, was) = &mut self.source else { return Ok(()) };
        let file = GrantFile { grants: self.client.grants, ..*was };
        if file != *was {
            file.save(path)?;
            *was = file;
        }
        Ok(())
    }

    fn random_work(&mut self) -> Work {
        let Area { offset, len } = self.client.area();
        let size = self.random.random_range(1..=u64::from(rma_xdp::ops::OP_SIZE_MAX).min(len));
        let writes = self.random.random() && !self.lacks_lane;
        let kind = if writes { Kind::Write } else { Kind::Read };
        Work { kind, span: (offset + self.random.random_range(0..=len - size), size as u32) }
    }

    /// Reads everything and compares it with what should be there.
    fn compare(&mut self) -> Result<(), PairError> {
        loop {
            let forgotten = self.forgotten;
            let area = self.client.area();
            self.seen = vec![0; self.model.len() as usize];
            let mut places = area.spans();
            self.drive(&mut |_| places.next().map(|span| Work { kind: Kind::Look, span }))?;
            // Findings before a new grant say nothing about the region after it.
            if self.forgotten == forgotten {
                break;
            }
        }
        if self.stops() {
            return Ok(());
        }
        let fresh = self.fresh.take();
        let regranted = fresh.is_some();
        let wrong = self.model.first_difference(self.client.area().offset, &self.seen);
        let found = match (wrong, fresh) {
            (None, _) => Found::Kept,
            (Some(_), Some(fresh))
                if fresh.first_difference(self.client.area().offset, &self.seen).is_none() =>
            {
                self.model = fresh;
                Found::Fresh
            }
            (Some(at), _) => return Err(PairError::WrongByte { at }),
        };
        let has_other_lane = core::mem::take(&mut self.has_other_lane);
        if regranted {
            let Area { offset, len } = self.client.area();
            match has_other_lane {
                true => self.say(&Event::Lane { area: [offset, offset + len] }),
                false => self.say(&Event::Regranted { region: found }),
            }
        }
        self.round.compared += self.model.len();
        Ok(())
    }

    /// [`Self::restore`]. Ctrl-C ends it, unless it is the first one, which hastens it.
    fn restore_unless_interrupted(&mut self) -> Result<(), PairError> {
        let interrupt = self.interrupt;
        loop {
            let restored = interrupt.once_more(|second| {
                self.second = Some(second.clone());
                if self.was_stopped {
                    self.say(&Event::Restoring);
                }
                self.restore()
            });
            match restored {
                Err(PairError::Interrupted) if !self.was_stopped => self.was_stopped = true,
                ended => return ended,
            }
        }
    }

    /// Writes the pattern wherever something else is, and looks whether it is there then.
    fn restore(&mut self) -> Result<(), PairError> {
        self.look_for_the_lane();
        if self.lacks_lane {
            let why = "the session was lost, and with it the lane; whoever is given these bytes next gets them filled anew";
            return Err(PairError::Other(why.into()));
        }
        let pattern = self.client.pattern;
        let area = self.client.area();
        let mut bytes = vec![0; self.model.len() as usize];
        pattern.fill(area.offset, &mut bytes);
        let doubtful = core::mem::take(&mut self.doubtful);
        let changed: Vec<Span> = area
            .spans()
            .filter(|&(offset, size)| {
                let bytes = &bytes[(offset - area.offset) as usize..][..size as usize];
                self.model.first_difference(offset, bytes).is_some()
                    || doubtful.iter().any(|&other| overlap((offset, size), other))
            })
            .collect();
        let mut changed = changed.into_iter();
        let written =
            self.drive(&mut |_| changed.next().map(|span| Work { kind: Kind::Restore, span }));
        if written.is_err() {
            self.doubtful = doubtful;
        }
        written?;
        self.compare()
    }

    /// Issues what `next` gives, and the rotation that is wanted, and returns when all of it has
    /// succeeded; or when nothing is under way any longer, if somebody wants it to end.
    fn drive(&mut self, next: &mut dyn FnMut(&mut Self) -> Option<Work>) -> Result<(), PairError> {
        loop {
            if self.second.as_ref().is_some_and(Interrupt::is_set) {
                return Err(PairError::Interrupted);
            }
            if self.stops() {
                let writes = self.again.drain(..).filter(|work| work.kind.writes());
                self.doubtful.extend(writes.map(|work| work.span));
            } else {
                self.issue(next)?;
            }
            if self.in_flight.is_empty()
                && self.rekeying.is_none_or(|rekeying| rekeying.slot.is_none())
            {
                return Ok(());
            }
            let completion = self.client.host.wait(&mut self.client.portal)?;
            let (slot, status) = (completion.slot, completion.status);
            if self.rekeying.is_some_and(|rekeying| rekeying.slot == Some(slot)) {
                self.rekey_ended(status);
            } else {
                let (work, under) =
                    self.in_flight.remove(&slot).expect("completions name issued slots");
                if let (Source::Service(keys, _), Some(epoch)) = (&self.source, under) {
                    keys.note(epoch, status);
                }
                match status {
                    // Of what was the lane before nothing is to be said any more.
                    _ if !self.is_inside(work.span) => {}
                    OpStatus::Ok => self.landed(slot, work)?,
                    _ => self.again.push(work),
                }
            }
            self.note(status)?;
        }
    }

    fn issue(&mut self, next: &mut dyn FnMut(&mut Self) -> Option<Work>) -> Result<(), PairError> {
        if let Some(Rekeying { key, slot: slot @ None, .. }) = &mut self.rekeying
            && self.client.portal.next_slot().is_some()
        {
            let grant = self.client.grants.get(OpType::Rekey)?;
            *slot = Some(self.client.portal.rekey(&grant, *key)?);
        }
        while let Some(slot) = self.client.portal.next_slot() {
            // One op finds out as well as many whether somebody answers.
            if self.failures >= FAILURES_SAID && !self.in_flight.is_empty() {
                break;
            }
            let Some(work) = self.again.pop().or_else(|| next(self)) else { break };
            if !self.is_inside(work.span) || work.kind.writes() && self.lacks_lane {
                continue;
            }
            let mut others = self.in_flight.values();
            if others.any(|(other, _)| {
                (work.kind.writes() || other.kind.writes()) && overlap(work.span, other.span)
            }) {
                // First of all once the other has ended.
                self.again.push(work);
                break;
            }
            self.submit(slot, work)?;
        }
        Ok(())
    }

    /// Whether an op is in the area of now.
    fn is_inside(&self, (offset, size): Span) -> bool {
        let Area { offset: first, len } = self.client.area();
        offset >= first && offset + u64::from(size) <= first + len
    }

    fn submit(&mut self, slot: CommandSlotId, work: Work) -> Result<(), PairError> {
        let (offset, size) = work.span;
        let at = self.client.place(slot);
        let slot = if work.kind.writes() {
            let mut bytes = [0; rma_xdp::ops::OP_SIZE_MAX as usize];
            let bytes = &mut bytes[..size as usize];
            self.written += 1;
            match work.kind {
                Kind::Restore => self.client.pattern.fill(offset, bytes),
                _ => {
                    let seed = self.client.pattern.seed().rotate_left(32) ^ self.written;
                    Pattern::new(seed).fill(0, bytes);
                }
            }
            self.client.local.write(at, bytes).expect("inside");
            let grant = self.client.grants.get(OpType::Write)?;
            self.client.portal.write(&grant, offset, &self.client.local, at, size)?
        } else {
            let grant = self.client.grants.get(OpType::Read)?;
            self.client.portal.read(&grant, offset, &self.client.local, at, size)?
        };
        self.in_flight.insert(slot, (work, self.source.epoch()));
        Ok(())
    }

    /// An op has ended with OK.
    fn landed(&mut self, slot: CommandSlotId, work: Work) -> Result<(), PairError> {
        let (offset, size) = work.span;
        let mut bytes = [0; rma_xdp::ops::OP_SIZE_MAX as usize];
        let bytes = &mut bytes[..size as usize];
        self.client.local.read(self.client.place(slot), bytes).expect("inside");
        match work.kind {
            // It is not known yet which of two models holds.
            Kind::Read if self.fresh.is_some() => return Ok(()),
            Kind::Read => {
                self.round.reads += 1;
                if let Some(at) = self.model.first_difference(offset, bytes) {
                    return Err(PairError::WrongByte { at });
                }
            }
            Kind::Look => {
                let at = (offset - self.client.area().offset) as usize;
                self.seen[at..][..size as usize].copy_from_slice(bytes);
            }
            Kind::Write | Kind::Restore => {
                self.round.writes += u64::from(work.kind == Kind::Write);
                self.model.apply(offset, bytes);
                if let Some(fresh) = &mut self.fresh {
                    fresh.apply(offset, bytes);
                }
            }
        }
        self.round.bytes += u64::from(size);
        Ok(())
    }

    /// The op of a rotation has ended.
    fn rekey_ended(&mut self, status: OpStatus) {
        let Some(Rekeying { key, slot: _, unsure }) = self.rekeying else { return };
        match status {
            OpStatus::Ok => {
                self.rekeying = None;
                self.round.rekeys += 1;
                self.client.grants = self.client.grants.under(&key);
            }
            OpStatus::RemoteAuthenticationFailure => {
                // It was not known whether the key had been installed. If it has, once more does no
                // harm.
                if unsure {
                    self.client.grants = self.client.grants.under(&key);
                }
                self.rekeying = Some(Rekeying { key, slot: None, unsure: false });
            }
            _ => self.rekeying = Some(Rekeying { key, slot: None, unsure: true }),
        }
    }

    /// Notes how an op ended, and looks for a new grant if it failed.
    fn note(&mut self, status: OpStatus) -> Result<(), PairError> {
        let now = self.client.clock.now().as_nanos();
        if status == OpStatus::Ok {
            if self.failures >= FAILURES_SAID {
                self.say(&Event::Answered);
            }
            (self.failures, self.succeeded_at) = (0, now);
            return Ok(());
        }
        *self.totals.failed.entry(status.name()).or_default() += 1;
        let passing = matches!(
            status,
            OpStatus::Timeout
                | OpStatus::DispatchTimeout
                | OpStatus::Nack
                | OpStatus::RemoteAuthenticationFailure
        );
        let patience = match self.was_stopped {
            true => HASTE,
            false => Duration::from_secs(self.args.patience),
        };
        if !passing || Duration::from_nanos(now - self.succeeded_at) >= patience {
            return Err(PairError::Failing {
                failures: self.failures + 1,
                status,
                hint: hint(status),
            });
        }
        // While a key is rotated, old ones are refused.
        if self.rekeying.is_none() || status != OpStatus::RemoteAuthenticationFailure {
            self.failures = self.failures.saturating_add(1);
            let said = self.failures / FAILURES_SAID;
            if self.failures.is_multiple_of(FAILURES_SAID) && said.is_power_of_two() {
                self.say(&Event::Failing { status: status.name(), failures: self.failures });
            }
        }
        self.look_for_a_new_grant();
        Ok(())
    }

    fn look_for_a_new_grant(&mut self) {
        let Some(Renewed { grants, pattern, is_another }) = self.source.look(&self.client) else {
            return;
        };
        (self.client.grants, self.client.pattern) = (grants, pattern);
        if !is_another {
            self.round.rekeys += 1;
            return;
        }
        self.totals.regrants += 1;
        self.has_other_lane = false;
        self.take_lane();
        self.forget();
        if let Some(rekeying) = &mut self.rekeying {
            // The op's fate under the old grant no longer matters.
            rekeying.unsure = false;
        }
    }

    /// Whatever is in the region now is looked at before anything else.
    fn forget(&mut self) {
        self.forgotten += 1;
        self.fresh = Some(fresh_model(&self.client));
        self.again.retain(|work| work.kind != Kind::Read);
    }

    /// Looks whether the session lasts, and with it the lane; nothing is under way. If not, there
    /// is another lane, or none, and then nothing is written.
    fn look_for_the_lane(&mut self) {
        if self.has_lanes && self.remote.usage().is_none() && self.take_lane() {
            self.forget();
            self.has_other_lane = true;
        }
    }

    /// Takes a lane as long as the one before, where there was one. Returns whether there is one.
    fn take_lane(&mut self) -> bool {
        let Source::Service(_, service) = &self.source else { return false };
        if !self.has_lanes {
            return false;
        }
        let len = self.client.area().len;
        // Once: meanwhile nothing turns the engine, and there will be another time.
        let service = service.clone().with_patience(Duration::ZERO);
        let taken = service.session().and_then(|session| {
            let Some(mut session) = session else { return Ok(None) };
            let lane = session.lane(len)?;
            Ok(Some((session, lane)))
        });
        let found = taken.unwrap_or_else(|why| {
            eprintln!("rma-bench: there is no lane, so nothing is written: {why}");
            None
        });
        self.lacks_lane = found.is_none();
        let (session, lane) = found.unzip();
        if let Some(hello) = session.as_ref().map(Session::hello) {
            self.client.pattern = Pattern::new(hello.seed);
        }
        self.remote.renew(session);
        if let Some(Lane { offset, len }) = lane.filter(|it| it.offset != self.client.area().offset)
        {
            self.client.set_area(Area { offset, len });
            self.model = fresh_model(&self.client);
            self.doubtful.clear();
        }
        !self.lacks_lane
    }

    fn say(&self, event: &Event<'_>) {
        event.say(self.args.json);
    }
}

/// The part of the region that ops go to: a lane, where the server has lanes.
fn area(remote: &mut Remote, client: &Client, span: u64) -> Result<Area, ServeError> {
    match &mut remote.session {
        None => Ok(Area { offset: 0, len: client.grants.any().region_len.min(span) }),
        Some(session) => {
            let len = session.hello().writable.len.min(span);
            let Lane { offset, len } = session.lane(len).map_err(KeysError::from)?;
            Ok(Area { offset, len })
        }
    }
}

/// The content of that part in a fresh region.
fn fresh_model(client: &Client) -> Model {
    let Area { offset, len } = client.area();
    let mut bytes = vec![0; usize::try_from(len).expect("at most 64 MiB")];
    client.pattern.fill(offset, &mut bytes);
    Model::at(offset, bytes)
}
