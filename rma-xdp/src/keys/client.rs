//! The client's end: transfers of regions by name, as futures.
//!
//! Invariants: a transfer comes to its end once, in its time; each byte of it is transferred or
//! told as missing; a future that is dropped gives its buffers back when the NIC is done with them,
//! and leaves nothing behind.

mod op;

use core::{
    mem,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use rma_app::{BufPiece, Client, RegionBuf, Transfer, TransferError, TransferOptions, WaitError};
use rma_core::{
    executor::{Missing, Outcome, PIECES_MAX, RetryPolicy},
    grant::Grant,
    op::{ClassOfService, OpStatus, OpType},
    time::Instant,
};
use rma_keys::{
    cache::GrantCache,
    io::key_cache::{KeyCache, KeyedRegion, NoKey, Ready},
    keyed::{Asked, KeyedStatus, Persistence, tell},
    limits::KEYS_WAIT_MAX,
    ring::{GiveUp, KeyedGrant, Standing},
};

use super::error::KeyedError;

/// Reads and writes regions by name, and sends to queues and counts in words by name, over a
/// [`Client`], under the keys of [`KeyCache`]. Clones share both. It gives futures, for any
/// executor (tokio's, or another), or none.
///
/// A transfer that finds no key waits for one. One whose key has changed goes on with the bytes
/// that are missing, under the new key and inside its time, so an application sees a rotation as a
/// delay. A write may be issued again, as an op that has failed changes nothing any more (P2). One
/// whose region is another now, as its owner has started again or has published another under the
/// name, begins anew with that: what is OK was transferred with one region, all of it.
#[derive(Clone, Debug)]
pub struct KeyedClient {
    client: Client,
    grants: KeyCache,
}

/// A run of bytes that is one both in a region and in a buffer: what a [`BufPiece`] is, by name.
#[derive(Clone, Debug)]
pub struct KeyedBufPiece {
    /// The remote region. All of a transfer are of one host.
    pub region: KeyedRegion,
    /// The offset in the region, in bytes.
    pub remote_offset: u64,
    /// In which of the transfer's buffers, by its place among them.
    pub buf: usize,
    /// The offset in the buffer, in bytes.
    pub buf_offset: usize,
    /// How many bytes; at least one.
    pub len: usize,
}

impl KeyedClient {
    /// A client that goes by the keys of `grants`.
    #[must_use]
    pub fn new(client: Client, grants: &KeyCache) -> Self {
        Self { client, grants: grants.clone() }
    }

    /// The client that it is over: for what has grants of its own.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Reads as many bytes as `buf` has, from `remote_offset` of the region.
    ///
    /// # Panics
    /// If the region is of another [`KeyCache`].
    pub fn read(&self, region: &KeyedRegion, remote_offset: u64, buf: RegionBuf) -> KeyedTransfer {
        self.whole(OpType::Read, region, remote_offset, buf)
    }

    /// Writes all bytes of `buf`, to `remote_offset` of the region.
    ///
    /// # Panics
    /// As [`KeyedClient::read`].
    pub fn write(&self, region: &KeyedRegion, remote_offset: u64, buf: RegionBuf) -> KeyedTransfer {
        self.whole(OpType::Write, region, remote_offset, buf)
    }

    fn whole(
        &self,
        op_type: OpType,
        region: &KeyedRegion,
        remote_offset: u64,
        buf: RegionBuf,
    ) -> KeyedTransfer {
        let (region, len) = (region.clone(), buf.len());
        let piece = KeyedBufPiece { region, remote_offset, buf: 0, buf_offset: 0, len };
        let one = |mut bufs: Vec<RegionBuf>| bufs.pop().expect("one was given");
        self.transfer(op_type, vec![piece], vec![buf], one)
    }

    /// Reads several runs of bytes, all from one host, into `bufs`: see [`Client::read_pieces`].
    ///
    /// # Panics
    /// If a piece is in a buffer that is not among `bufs`, there is none, or a region is of another
    /// [`KeyCache`].
    pub fn read_pieces(
        &self,
        pieces: Vec<KeyedBufPiece>,
        bufs: Vec<RegionBuf>,
    ) -> KeyedTransfer<Vec<RegionBuf>> {
        self.transfer(OpType::Read, pieces, bufs, |bufs| bufs)
    }

    /// Writes several runs of bytes of `bufs`, all to one host.
    ///
    /// # Panics
    /// As [`KeyedClient::read_pieces`].
    pub fn write_pieces(
        &self,
        pieces: Vec<KeyedBufPiece>,
        bufs: Vec<RegionBuf>,
    ) -> KeyedTransfer<Vec<RegionBuf>> {
        self.transfer(OpType::Write, pieces, bufs, |bufs| bufs)
    }

    fn transfer<B>(
        &self,
        op_type: OpType,
        pieces: Vec<KeyedBufPiece>,
        bufs: Vec<RegionBuf>,
        give_back: fn(Vec<RegionBuf>) -> B,
    ) -> KeyedTransfer<B> {
        assert!(!pieces.is_empty(), "a transfer has at least one piece");
        for (index, piece) in pieces.iter().enumerate() {
            let is_of = piece.region.key_cache().is_same(&self.grants);
            assert!(is_of, "piece {index} is of a region of another key cache");
            let (buf, count) = (piece.buf, bufs.len());
            assert!(buf < count, "piece {index} is in buffer {buf} of {count}");
        }
        KeyedTransfer {
            keyed: self.clone(),
            op_type,
            pieces,
            options: TransferOptions::new(),
            timeout: None,
            give_back,
            phase: Phase::Idle(bufs),
            began: None,
            bytes_done: 0,
            given: None,
            left: None,
            persistence: Persistence::default(),
        }
    }

    /// Runs a future to its end on this thread: see [`Client::block_on`].
    ///
    /// # Errors
    /// If the engine is inline.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, WaitError> {
        self.client.block_on(future)
    }
}

/// A read or write of regions by name: [`KeyedClient`]. Begins when it is first polled. Gives its
/// buffers back with the result.
///
/// Dropped before, it gives up: no more ops of it are issued, and the buffers are their pools'
/// again when those under way are over.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct KeyedTransfer<B = RegionBuf> {
    keyed: KeyedClient,
    op_type: OpType,
    pieces: Vec<KeyedBufPiece>,
    options: TransferOptions,
    timeout: Option<Duration>,
    give_back: fn(Vec<RegionBuf>) -> B,
    phase: Phase,
    began: Option<Instant>,
    /// By all tries since it last began anew.
    bytes_done: u64,
    /// The pieces that the caller has said are missing. `None`: everything.
    given: Option<Box<Outcome>>,
    /// The pieces that the last try has left missing, of all. `None`, as before the first:
    /// everything.
    left: Option<Outcome>,
    persistence: Persistence,
}

#[derive(Debug)]
enum Phase {
    /// To be begun, or gone on with.
    Idle(Vec<RegionBuf>),
    /// For a key.
    Waits(Vec<RegionBuf>, Ready),
    UnderWay(UnderWay),
    Over,
}

/// One try.
#[derive(Debug)]
struct UnderWay {
    transfer: Transfer<Vec<RegionBuf>>,
    /// By piece.
    asked: Vec<Asked>,
    /// The pieces that are missing and had no room in this try.
    rest: Vec<Missing>,
}

/// The next need of a try.
enum Next {
    Key {
        piece: usize,
        most: Duration,
    },
    Try(Vec<Grant>, Vec<Asked>),
    None {
        piece: usize,
        why: GiveUp,
    },
    /// All is done.
    Nothing,
}

impl<B> KeyedTransfer<B> {
    /// Class of service, retry policy and timeout at once, in place of those that it had.
    pub fn options(self, options: TransferOptions) -> Self {
        Self { timeout: options.time_limit(), options, ..self }
    }

    /// With which class of service: see [`Transfer::class`].
    pub fn class(self, class: ClassOfService) -> Self {
        Self { options: self.options.class(class), ..self }
    }

    /// Sets the policy for ops that fail, keys aside: see [`Transfer::retry`].
    pub fn retry(self, retry: RetryPolicy) -> Self {
        Self { options: self.options.retry(retry), ..self }
    }

    /// After how long to give up, from when it is first polled, the time that it waits for keys
    /// included. Default: as of [`Transfer::timeout`], and after ten seconds without a key. An
    /// owner that answers nobody ends it sooner: to see it restart, let [`RetryPolicy::outlast`] be
    /// as long, by [`KeyedTransfer::retry`].
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Transfers only what another transfer of these bytes left missing, such as one with another
    /// replica ([`KeyedError::outcome`]): see [`Transfer::remaining`]. What it says is done stays
    /// done, also if this transfer begins anew with another region.
    ///
    /// # Panics
    /// If the outcome is of other pieces.
    pub fn remaining(self, outcome: &Outcome) -> Self {
        let is_in = outcome.missing.iter().all(|it| it.piece < self.pieces.len());
        assert!(is_in, "an outcome of a transfer with the same pieces");
        Self { left: Some(outcome.clone()), given: Some(Box::new(outcome.clone())), ..self }
    }

    /// How long it has left.
    fn left_at(&self, now: Instant) -> Option<Duration> {
        let began = self.began.unwrap_or(now);
        self.timeout.map(|timeout| timeout.saturating_sub(now.since(began)))
    }

    /// How many bytes of a piece are asked for next.
    fn asks(&self, index: usize) -> u64 {
        match &self.left {
            None => self.pieces[index].len as u64,
            Some(left) => {
                let parts = left.missing.iter().take(PIECES_MAX);
                parts.filter(|it| it.piece == index).map(|it| it.len).sum()
            }
        }
    }

    /// Looks for keys of what is missing.
    fn next(&mut self, cache: &mut GrantCache, now: Instant) -> Next {
        self.began.get_or_insert(now);
        let mut keys: Vec<Option<KeyedGrant>> = Vec::with_capacity(self.pieces.len());
        for (index, piece) in self.pieces.iter().enumerate() {
            if self.asks(index) == 0 && self.left.is_some() {
                keys.push(None);
                continue;
            }
            let ring = piece.region.ring();
            match cache.standing(now, ring) {
                Standing::Ready => {}
                Standing::Waiting => {
                    let most = self.left_at(now).unwrap_or(KEYS_WAIT_MAX);
                    return Next::Key { piece: index, most };
                }
                Standing::GaveUp(why) => return Next::None { piece: index, why },
            }
            match cache.grant(now, ring, self.op_type) {
                Some(key) => keys.push(Some(key)),
                // The ring is for other ops.
                None => return Next::None { piece: index, why: GiveUp::Denied },
            }
        }
        let Some(any) = keys.iter().find_map(|it| *it) else { return Next::Nothing };
        let asked = self.pieces.iter().zip(keys).enumerate().map(|(index, (piece, key))| {
            // A piece that is done needs a grant, and none of its own.
            let key = key.unwrap_or(any);
            (key.grant, Asked::of(piece.region.ring(), &key, self.asks(index)))
        });
        let (grants, asked): (Vec<_>, Vec<_>) = asked.unzip();
        if self.persistence.begins_anew(&asked) {
            self.left = self.given.as_deref().cloned();
            self.bytes_done = 0;
            return self.next(cache, now);
        }
        Next::Try(grants, asked)
    }

    fn begin(
        &self,
        bufs: Vec<RegionBuf>,
        grants: Vec<Grant>,
        asked: Vec<Asked>,
        now: Instant,
    ) -> UnderWay {
        let pieces = self.pieces.iter().zip(grants).map(|(piece, grant)| {
            let &KeyedBufPiece { remote_offset, buf, buf_offset, len, .. } = piece;
            BufPiece { grant, remote_offset, buf, buf_offset, len }
        });
        let (pieces, client) = (pieces.collect(), &self.keyed.client);
        let transfer = if self.op_type == OpType::Read {
            client.read_pieces(pieces, bufs)
        } else {
            client.write_pieces(pieces, bufs)
        };
        let options = self.options;
        let options = self.left_at(now).map_or(options, |left| options.timeout(left));
        let transfer = transfer.options(options);
        let Some(left) = &self.left else {
            return UnderWay { transfer, asked, rest: Vec::new() };
        };
        let mut only = left.clone();
        let rest = only.missing.split_off(only.missing.len().min(PIECES_MAX));
        UnderWay { transfer: transfer.remaining(&only), asked, rest }
    }

    /// A try is over: what is left goes on, or the whole is over.
    fn end(
        &mut self,
        result: Result<(), TransferError>,
        asked: &[Asked],
        mut rest: Vec<Missing>,
    ) -> Option<Result<(), KeyedError>> {
        let grants = &self.keyed.grants;
        let mut outcome = match result {
            Ok(()) => {
                if let Err(forked) = grants.with_cache(|cache, now| tell_done(cache, now, asked)) {
                    return Some(Err(forked.into()));
                }
                self.bytes_done += asked.iter().map(|it| it.len).sum::<u64>();
                let left = self.left.as_mut().filter(|_| !rest.is_empty());
                let Some(left) = left else { return Some(Ok(())) };
                left.missing = rest;
                self.persistence.remember(asked, &[]);
                return None;
            }
            Err(TransferError::Failed(outcome)) => *outcome,
            Err(error) => return Some(Err(error.into())),
        };
        let verdict = match grants.with_cache(|cache, now| tell(now, cache, asked, &outcome)) {
            Ok(verdict) => verdict,
            Err(forked) => return Some(Err(forked.into())),
        };
        let goes_on = self.persistence.goes_on(asked, &outcome, verdict);
        self.bytes_done += outcome.bytes_done;
        outcome.bytes_done = self.bytes_done;
        outcome.missing.append(&mut rest);
        match goes_on {
            Ok(()) => {
                self.left = Some(outcome);
                None
            }
            Err(KeyedStatus::GaveUp(why)) => {
                let is_refused =
                    |it: &&Missing| it.tried == Some(OpStatus::RemoteAuthenticationFailure);
                let missing = outcome.missing.iter();
                let piece = missing.clone().find(is_refused).or(outcome.missing.first());
                let why = self.pieces[piece.map_or(0, |it| it.piece)].region.gave_up(why);
                self.left = Some(outcome);
                Some(Err(self.no_key(why)))
            }
            Err(_) => Some(Err(TransferError::Failed(outcome.into()).into())),
        }
    }

    fn no_key(&mut self, why: NoKey) -> KeyedError {
        KeyedError::NoKey { why: why.into(), last: self.left.take().map(Box::new) }
    }

    fn over(
        &mut self,
        result: Result<(), KeyedError>,
        bufs: Vec<RegionBuf>,
    ) -> Poll<(Result<(), KeyedError>, B)> {
        self.phase = Phase::Over;
        Poll::Ready((result, (self.give_back)(bufs)))
    }
}

/// Tells rings that all of a try was done.
fn tell_done(cache: &mut GrantCache, now: Instant, asked: &[Asked]) {
    for (index, it) in asked.iter().enumerate().filter(|(_, it)| it.len > 0) {
        let is_told = asked[..index]
            .iter()
            .any(|other| other.len > 0 && (other.ring, other.epoch) == (it.ring, it.epoch));
        if !is_told {
            _ = cache.on_outcome(now, it.ring, it.epoch, OpStatus::Ok);
        }
    }
}

impl<B> Future for KeyedTransfer<B> {
    type Output = (Result<(), KeyedError>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match mem::replace(&mut this.phase, Phase::Over) {
                Phase::Idle(bufs) => {
                    let grants = this.keyed.grants.clone();
                    let next = grants.with_cache(|cache, now| (this.next(cache, now), now));
                    let (next, now) = match next {
                        Ok(next) => next,
                        Err(forked) => return this.over(Err(forked.into()), bufs),
                    };
                    this.phase = match next {
                        Next::Key { piece, most } => {
                            Phase::Waits(bufs, this.pieces[piece].region.ready(most))
                        }
                        Next::Try(grants, asked) => {
                            Phase::UnderWay(this.begin(bufs, grants, asked, now))
                        }
                        Next::Nothing => return this.over(Ok(()), bufs),
                        Next::None { piece, why } => {
                            let why = this.pieces[piece].region.gave_up(why);
                            let error = this.no_key(why);
                            return this.over(Err(error), bufs);
                        }
                    };
                }
                Phase::Waits(bufs, mut ready) => match Pin::new(&mut ready).poll(context) {
                    Poll::Pending => {
                        this.phase = Phase::Waits(bufs, ready);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(())) => this.phase = Phase::Idle(bufs),
                    Poll::Ready(Err(why)) => {
                        let error = this.no_key(why);
                        return this.over(Err(error), bufs);
                    }
                },
                Phase::UnderWay(mut under_way) => {
                    match Pin::new(&mut under_way.transfer).poll(context) {
                        Poll::Pending => {
                            this.phase = Phase::UnderWay(under_way);
                            return Poll::Pending;
                        }
                        Poll::Ready((result, bufs)) => {
                            let UnderWay { asked, rest, .. } = under_way;
                            match this.end(result, &asked, rest) {
                                Some(result) => return this.over(result, bufs),
                                None => this.phase = Phase::Idle(bufs),
                            }
                        }
                    }
                }
                Phase::Over => panic!("a future is not polled after its end"),
            }
        }
    }
}
