//! Ops that publish: the last op of a call that must go last, and the op of a call of one (not in
//! the paper). Also an op of the past that a call asks about: that is settled, and nothing else.
//!
//! What is published may be consumed at once, so such an op is never repeated while it may have
//! been applied. What its target says of it, or does not say, decides:
//!
//! | stage | begins with | next |
//! |---|---|---|
//! | body | the call | waiting, when all other ops are done |
//! | waiting | that; or an attempt that was not applied | under way, in the turn of its call, after a back-off if no receive was posted |
//! | under way | it is issued | over; waiting; settling, after a TIMEOUT that may have changed something |
//! | settling | that TIMEOUT | over, or waiting, by the verdict; over and unknown, without one in time |
//!
//! Invariant: at most one attempt has a fate that is unknown. One is issued only when the last one
//! was not applied, and never will be.

use super::{
    CommandExecutor, Op,
    call::{self, Call, CallError, Missing, Publish, RetryPolicy},
    calls::{CallState, End, Phase, Span, Tries},
    not_ready::Refused,
    paths::{Issue, Next},
    peers::Heard,
};
use crate::{
    cc::Feedback,
    command::{Command, CommandOp, CommandSlotId, Completion, RecordedOp, Transfer},
    crypto::DerivedRegionKey,
    grant::Grant,
    op::{OpStatus, OpType},
    outcome::{OpName, Verdict},
    portal::Placement,
    region::RegionId,
    time::{Instant, nanos},
};

/// How long a target can tell what became of an op, from the op's end, in its timeouts: taken to be
/// those of the own NIC. Longer: it is asked in vain. Shorter: an outcome stays unknown that could
/// have been known.
const RETENTION: u64 = 4;

/// The first wait before a target is asked again that has refused to answer, in parts of a timeout;
/// each further one is twice as long, up to half a timeout. Shorter: a target that is overloaded is
/// asked more often. Longer: fewer questions fit into the retention.
const ASK_AGAIN_PART: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Body,
    Waiting,
    UnderWay,
    Settling(Settling),
    Over,
}

/// The question about an op that timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settling {
    name: OpName,
    /// When the target may have forgotten.
    until: Instant,
    /// Whether it has been asked.
    asked: bool,
    /// How long the next wait is, in nanoseconds.
    wait: u64,
}

/// The publishing op of a call, or an earlier one that a call asks about.
#[derive(Debug)]
pub(super) struct Publishing {
    /// The op to apply. `None` of a call that only asks: that begins with settling, and is over
    /// with any verdict.
    op: Option<RecordedOp>,
    /// The type that its key is bound to.
    op_type: OpType,
    key: DerivedRegionKey,
    pub(super) region: RegionId,
    /// The type of ops in its call's outcome.
    call_type: OpType,
    /// The bytes that it stands for.
    pub(super) span: Span,
    stage: Stage,
    tries: Tries,
    /// For how long it may find no receive posted, in nanoseconds; once it did, until when.
    pub(super) not_ready: u64,
    pub(super) refused: Option<Refused>,
    /// The status of the last attempt.
    tried: Option<OpStatus>,
    /// It waits for its time, or for others to be over.
    pub(super) rests: bool,
    /// [`Terms::outlast`](super::calls::Terms) of its call, while that is another.
    outlast: u64,
    result: Option<u64>,
    /// The target's verdict, if its call only asks.
    verdict: Option<Verdict>,
}

impl Publishing {
    /// `op` on `region`, under `key`, of a call that its outcome says is of `call_type`.
    pub(super) fn new(
        op: RecordedOp,
        region: RegionId,
        key: DerivedRegionKey,
        call_type: OpType,
        span: Span,
        retry: RetryPolicy,
    ) -> Self {
        Self {
            op: Some(op),
            op_type: op.op_type(),
            key,
            region,
            call_type,
            span,
            stage: Stage::Body,
            tries: Tries::of(retry),
            not_ready: nanos(retry.not_ready),
            refused: None,
            tried: None,
            rests: false,
            outlast: 0,
            result: None,
            verdict: None,
        }
    }

    /// The op that its target calls `name`, to be asked about until `until` at most, with a first
    /// wait of so many nanoseconds.
    pub(super) fn asked_about(grant: &Grant, name: OpName, until: Instant, wait: u64) -> Self {
        Self {
            op: None,
            op_type: grant.op_type,
            key: grant.key,
            region: grant.region,
            call_type: grant.op_type,
            span: Span::NONE,
            stage: Stage::Settling(Settling { name, until, asked: false, wait }),
            tries: Tries::NONE,
            not_ready: 0,
            refused: None,
            tried: None,
            rests: false,
            outlast: 0,
            result: None,
            verdict: None,
        }
    }

    /// Whether its call asks about it, and does nothing else.
    pub(super) const fn is_only_asked_about(&self) -> bool {
        self.op.is_none()
    }

    /// Returns its target's name for it, if it may have been applied or not and that is how its
    /// call ends.
    pub(super) const fn in_doubt(&self) -> Option<OpName> {
        match self.stage {
            Stage::Settling(Settling { name, .. }) => Some(name),
            _ => None,
        }
    }

    /// Returns its target's verdict on it, if its call only asks.
    pub(super) const fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Whether nothing but this op is left of its call.
    pub(super) const fn is_last(&self) -> bool {
        !matches!(self.stage, Stage::Body)
    }

    /// Returns the op type in its call's outcome.
    pub(super) const fn call_type(&self) -> OpType {
        self.call_type
    }

    /// Returns the word that it found, if it is an atomic that was applied.
    pub(super) const fn result(&self) -> Option<u64> {
        self.result
    }

    /// Its bytes, unless it was applied.
    pub(super) fn missing(&self) -> Option<Missing> {
        (self.stage != Stage::Over).then(|| self.span.missing(self.tried))
    }

    /// It was applied. Returns how many bytes it stands for.
    pub(super) fn publish(&mut self, result: Option<u64>) -> u32 {
        (self.stage, self.result) = (Stage::Over, result);
        self.span.len
    }

    /// It is no longer under way, and not over.
    pub(super) const fn wait(&mut self) {
        self.stage = Stage::Waiting;
    }

    /// Whether it is issued, or will be.
    pub(super) const fn is_offered(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::UnderWay)
    }

    /// Whether its target is asked about it.
    pub(super) const fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Settling(_))
    }

    /// The bytes of a window that its next command takes.
    const fn charge(&self) -> u32 {
        if self.is_settled() { 0 } else { self.span.len }
    }
}

impl CommandExecutor {
    /// Whether a call may publish as it says.
    #[cold]
    pub(super) fn check_publish(&mut self, call: &Call<'_>) -> Result<(), CallError> {
        call::check_publish(call)?;
        let Publish::WithImmediate { grant, .. } = call.publish else { return Ok(()) };
        let piece = call.pieces.len() - 1;
        let usable = self.portal.check_grant(grant, OpType::WriteWithImm);
        usable.map_err(|error| CallError::Submit { piece, error })
    }

    /// The call at `index`, which begins, is one that publishes.
    #[cold]
    pub(super) fn publish_last(&mut self, index: u16, call: &Call<'_>) {
        let len = call::tail_len(call, self.cut(call.pieces[0].grant.responder));
        let piece = call.pieces.len() - 1;
        let last = &call.pieces[piece];
        let offset = last.len - u64::from(len);
        let transfer = Transfer {
            op_size: len,
            remote_offset: last.remote_offset + offset,
            local_region: last.local.id(),
            local_offset: last.local_offset + offset,
        };
        let (op, key) = match call.publish {
            Publish::WithImmediate { grant, immediate, placement } => {
                let ordered = placement == Placement::Ordered;
                (RecordedOp::WriteWithImm { transfer, immediate, ordered }, grant.key)
            }
            Publish::Ordered | Publish::Plain => {
                (RecordedOp::OrderedWrite(transfer), last.grant.key)
            }
        };
        let call_state = &mut self.calls[index];
        let span = Span::new(piece as u16, offset, len);
        let publishing =
            Publishing::new(op, last.grant.region, key, OpType::Write, span, call.retry);
        call_state.publish(publishing);
        if !call_state.has_next() {
            call_state.begin_last();
        }
    }

    /// Issues the publishing op of a call, or asks about it.
    #[cold]
    pub(super) fn issue_publishing(&mut self, now: Instant, issue: &Issue, is_probe: bool) {
        let &Issue { call: index, charge, outstanding } = issue;
        let call = &mut self.calls[index];
        let publishing = call.publishing_mut();
        let Publishing { op, op_type, key, region, .. } = *publishing;
        let is_retry = publishing.stage == Stage::Waiting && publishing.tried.is_some();
        let asks = match &mut publishing.stage {
            Stage::Settling(settling) => {
                settling.asked = true;
                Some(settling.name)
            }
            stage => {
                *stage = Stage::UnderWay;
                None
            }
        };
        let span = call.take_publishing(is_retry);
        let (class, responder) = (call.class, self.cc.addr(call.path));
        let portal = &mut self.portal;
        let slot = portal.take_slot().expect("one is free");
        let done = portal.begin_recorded(slot, responder, region);
        let op = match asks {
            None => CommandOp::Recorded { op: op.expect("a call that only asks settles"), done },
            Some(name) => CommandOp::Settle { op_type, name },
        };
        // Of a broken engine nothing worse comes than that the op never ends.
        let _ = portal.put_any(&Command { slot, class, responder, remote_region: region, key, op });
        self.note_issued(
            slot,
            Op { call: index, span, charge, outstanding, issued: (self.issued, now), is_probe },
        );
    }

    /// An op of a call that publishes is over.
    #[cold]
    pub(super) fn complete_publishing(&mut self, now: Instant, completion: &Completion, op: Op) {
        let Op { call: index, span, charge, outstanding, issued, is_probe } = op;
        let call = &mut self.calls[index];
        let (path, class) = (call.path, call.class);
        let stage = call.publishing_mut().stage;
        let heard = self.peers.hear(now, path, completion.status, issued.0, issued.1);
        let is_silence = matches!(heard, Heard::Silence | Heard::PastSilence);
        // A question waits for two hops: that is no delay of the path's ops.
        let measures = matches!(stage, Stage::Body | Stage::UnderWay);
        if !is_silence && (measures || completion.status != OpStatus::Ok) {
            self.cc.on_completion(path, &Feedback::of(completion, span.len, now), outstanding);
        }
        self.paths.on_completion(path, class, charge);
        self.calls[index].outstanding -= 1;
        if heard != Heard::Answer || is_probe {
            self.note(now, path, heard, is_probe);
        }
        match stage {
            Stage::Settling(settling) => self.end_asking(now, index, settling, completion),
            Stage::UnderWay => self.end_attempt(now, index, heard, completion),
            Stage::Body | Stage::Waiting | Stage::Over => {
                self.end_part(now, index, heard, span, completion.status);
            }
        }
    }

    /// An op that publishes nothing is over.
    fn end_part(&mut self, now: Instant, index: u16, heard: Heard, span: Span, status: OpStatus) {
        if status == OpStatus::Ok {
            self.calls[index].bytes_done += u64::from(span.len);
            self.renew(now, index);
        } else {
            let (stays, end) = self.judge(now, index, heard, status);
            let call = &mut self.calls[index];
            let (path, class) = (call.path, call.class);
            if call.fail(span, status, heard, stays, end) {
                self.paths.enqueue(now, path, class, index);
            }
        }
        let call = &mut self.calls[index];
        if call.is_body_done() {
            call.begin_last();
            self.enqueue_publishing(now, index);
        } else {
            self.settle(index);
        }
    }

    /// An attempt is over.
    fn end_attempt(&mut self, now: Instant, index: u16, heard: Heard, completion: &Completion) {
        let call = &mut self.calls[index];
        let status = completion.status;
        call.publishing_mut().tried = Some(status);
        if status != OpStatus::RemoteNotReady {
            self.let_others_in(now, index, status == OpStatus::Ok);
        }
        let call = &mut self.calls[index];
        match (status, completion.name()) {
            (OpStatus::Ok, _) => {
                call.published(completion.result());
                self.settle(index);
            }
            (OpStatus::Timeout, Some(name)) => self.ask(now, index, name),
            (OpStatus::Timeout, None) if completion.may_have_changed() => self.end_unknown(index),
            (OpStatus::RemoteNotReady, _) => self.back_off(now, index),
            _ => {
                let (stays, end) = self.judge(now, index, heard, status);
                let is_silence = matches!(heard, Heard::Silence | Heard::PastSilence);
                self.try_again(now, index, is_silence && stays, status, end);
            }
        }
    }

    /// An attempt was not applied, and ended with `status`: another, if the policy has it and the
    /// call has not been given up. Otherwise it ends so. `free`: it does not count.
    fn try_again(&mut self, now: Instant, index: u16, free: bool, status: OpStatus, end: End) {
        let call = &mut self.calls[index];
        let is_given_up = call.end.is_some() || end == End::Silent;
        let publishing = call.publishing_mut();
        publishing.stage = Stage::Waiting;
        let tries = if free { Some(publishing.tries) } else { publishing.tries.after(status) };
        match tries.filter(|_| !is_given_up) {
            Some(tries) => {
                publishing.tries = tries;
                self.enqueue_publishing(now, index);
            }
            None => {
                call.end.get_or_insert(end);
                self.settle(index);
            }
        }
    }

    /// An attempt timed out, and may have been applied: its target is asked.
    fn ask(&mut self, now: Instant, index: u16, name: OpName) {
        let (retention, wait) = self.asking();
        let call = &mut self.calls[index];
        let (is_given_up, outlast) = (call.end.is_some(), call.outlast);
        let until = now.after_nanos(retention);
        let publishing = call.publishing_mut();
        publishing.stage = Stage::Settling(Settling { name, until, asked: false, wait });
        publishing.outlast = outlast;
        call.outlast = retention;
        self.renew(now, index);
        if is_given_up {
            self.urgent.push(self.calls.id(index));
        } else {
            self.enqueue_publishing(now, index);
        }
    }

    /// For how long a target is asked, and how long the first wait is until it is asked again, in
    /// nanoseconds.
    pub(super) const fn asking(&self) -> (u64, u64) {
        let timeout = self.peers.timeout();
        (timeout.saturating_mul(RETENTION), timeout / ASK_AGAIN_PART)
    }

    /// The target has answered, or not.
    fn end_asking(
        &mut self,
        now: Instant,
        index: u16,
        settling: Settling,
        completion: &Completion,
    ) {
        let call = &mut self.calls[index];
        let is_ok = completion.status == OpStatus::Ok;
        let publishing = call.publishing_mut();
        if publishing.is_only_asked_about() {
            publishing.tried = Some(completion.status);
        }
        match completion.verdict().filter(|_| is_ok) {
            Some(verdict) if publishing.is_only_asked_about() => {
                publishing.verdict = Some(verdict);
                call.published(completion.result());
                self.settle(index);
            }
            Some(Verdict::Applied) => {
                call.published(completion.result());
                self.settle(index);
            }
            Some(Verdict::NotApplied) => {
                call.outlast = call.publishing_mut().outlast;
                self.renew(now, index);
                let timeout = OpStatus::Timeout;
                self.try_again(now, index, false, timeout, End::Failed(timeout));
            }
            Some(Verdict::Forgotten) => self.end_unknown(index),
            None if call.end.is_some() || now >= settling.until => self.end_unknown(index),
            // It has waited already.
            None if completion.status == OpStatus::Timeout => self.enqueue_publishing(now, index),
            None => {
                let longest = self.peers.timeout() / 2;
                let wait = (2 * settling.wait).min(longest);
                call.publishing_mut().stage = Stage::Settling(Settling { wait, ..settling });
                self.rest(now.after_nanos(settling.wait), index);
            }
        }
    }

    /// It will not be known whether the publishing op was applied.
    fn end_unknown(&mut self, index: u16) {
        self.forget_stall(index);
        let call = &mut self.calls[index];
        call.end = Some(End::Unknown);
        call.unqueue_publishing();
        self.settle(index);
    }

    /// Gives up a call that publishes and is active. What is under way ends; what became of it is
    /// asked once, unless it was.
    #[cold]
    pub(super) fn stop_publishing(&mut self, index: u16, end: End) {
        let call = &mut self.calls[index];
        let is_first = call.end.is_none();
        call.end.get_or_insert(end);
        self.forget_stall(index);
        let call = &mut self.calls[index];
        let under_way = call.outstanding > 0;
        let publishing = call.publishing_mut();
        publishing.rests = false;
        self.not_ready.leave();
        match publishing.stage {
            // It is being asked; or it is about to be, as the call had been given up before.
            Stage::Settling(_) if under_way || !is_first => {}
            Stage::Settling(Settling { asked: true, .. }) => self.end_unknown(index),
            Stage::Settling(_) => {
                let (path, class) = (call.path, call.class);
                call.unqueue_publishing();
                self.paths.dequeue(path, class, index);
                self.urgent.push(self.calls.id(index));
            }
            Stage::Body | Stage::Waiting | Stage::UnderWay | Stage::Over => self.settle(index),
        }
    }

    /// Asks about the ops of calls that have been given up, whatever windows and pace say: there
    /// are `free` slots. Without one, or of a target that is dead, they stay unknown. Returns how
    /// many were asked about.
    #[inline]
    pub(super) fn ask_urgently(&mut self, now: Instant, free: usize) -> usize {
        if self.urgent.is_empty() { 0 } else { self.ask_all_urgently(now, free) }
    }

    #[cold]
    fn ask_all_urgently(&mut self, now: Instant, free: usize) -> usize {
        let mut asked = 0;
        while let Some(id) = self.urgent.pop() {
            let is_settled = |call: &CallState| {
                call.phase == Phase::Active && call.publishing().is_some_and(Publishing::is_settled)
            };
            if !self.calls.is_current(id) || !is_settled(&self.calls[id.index]) {
                continue;
            }
            let (path, class) = (self.calls[id.index].path, self.calls[id.index].class);
            if asked == free || self.peers.of(path).is_dead() {
                self.end_unknown(id.index);
                continue;
            }
            self.calls[id.index].queue_publishing(0);
            self.paths.enqueue(now, path, class, id.index);
            let (window, next) = (self.cc.window(path), Next { len: 0, is_last: true });
            let issue = self.paths.probe(now, path, &window, class, id.index, next);
            self.issue_publishing(now, &issue, false);
            asked += 1;
        }
        asked
    }

    /// Has the publishing op of a call, or what asks about it, issued in its turn.
    pub(super) fn enqueue_publishing(&mut self, now: Instant, index: u16) {
        let call = &mut self.calls[index];
        let len = call.publishing_mut().charge();
        call.queue_publishing(len);
        let (path, class) = (call.path, call.class);
        self.paths.enqueue(now, path, class, index);
    }

    /// Counts an op that was issued.
    #[inline(always)]
    pub(super) fn note_issued(&mut self, slot: CommandSlotId, op: Op) {
        self.ops[usize::from(slot.0 - self.first_slot)] = op;
        self.issued += 1;
    }
}

impl CallState {
    /// All other ops are done: the publishing one is next.
    pub(super) fn begin_last(&mut self) {
        let publishing = self.publishing_mut();
        publishing.stage = Stage::Waiting;
        let len = publishing.span.len;
        self.queue_publishing(len);
    }
}
