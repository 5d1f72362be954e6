//! StaR's own engines and libraries, joined by memory: what the stateless side keeps, what it
//! costs, and what it leaves to 1RMA.

use rma_bench::{
    aead,
    error::PairError,
    interrupt::Interrupt,
    pair::{cores, pinned},
    rates::Rates as Medians,
};
use rma_core::crypto::{AeadProvider, ProviderKind};

use super::spec::Measured;
use crate::error::FigureError;
use crate::{
    allocator, instructions,
    scale::OneAndMany,
    stations::{
        asked::{self, MORE, OfEngine, OfLibrary},
        beside_aead::{self, BATCH, SendCost},
        flat::{self, MANY},
        security::{self, Rates, Workload},
        share,
    },
    turn::Keys,
};

/// Rounds. An odd number has a middle one.
const ROUNDS: usize = 51;
/// Connections whose whitelists are measured: the most of the paper's evaluation.
const CONNECTIONS: u32 = 400;
/// Turns of an engine with both services.
const TURNS: usize = 20_000;

pub(super) fn memory(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    if !allocator::counts() {
        return Ok(Vec::new());
    }
    let OfEngine { asked, tables_of_one, tables_of_all } = asked::by_engine(aead::chosen());
    let detail = format!(
        "bytes that the engine of a stateless side is given by the allocator, set-up of {MANY} connections and a call on each",
    );
    let flat = Measured::new(asked.given as f64, detail);
    let more = tables_of_all as f64 - tables_of_one as f64;
    let detail = format!(
        "tables of stateless processing: {tables_of_one} B with one connection, {tables_of_all} B with {MANY}"
    );
    let value = more / f64::from(MANY - 1);
    let tables = Measured::new(value, detail);
    let OfLibrary { per_qp, per_wr, all, rings } = asked::by_library(aead::chosen(), false);
    let words = format!(
        "by what the allocator gave to the portal and the library of a stateless side with room for {MORE} more, all connected \
         and with an open RECV, beside those of one that has one of either and rings of the same length; {MORE} of both take \
         {:.0} B each with all that there is, of which rings {rings} B",
        all as f64 / f64::from(MORE),
    );
    let per = |value, what: &str| {
        let detail =
            format!("bytes that one {what} adds, its words in the portal included, {words}");
        Measured::new(value, detail)
    };
    Ok(vec![flat, tables, per(per_qp, "queue pair"), per(per_wr, "work request")])
}

pub(super) fn instructions(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let [one, many] = [1, MANY].map(instructions::of_a_star_call);
    let (Some(one), Some(many)) =
        (one.map_err(FigureError::Valgrind)?, many.map_err(FigureError::Valgrind)?)
    else {
        return Ok(Vec::new());
    };
    let detail = format!(
        "instructions of the stateless side's engine for a call of 3 SENDs of 32 B and one back, one after the other: {one:.0} \
         with 1 connection, {many:.0} on any of {MANY}",
    );
    Ok(vec![Measured::new(many / one, detail)])
}

pub(super) fn time(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let OneAndMany { one, many, ratio } = pinned(cores().1, || flat::time(ROUNDS, aead::chosen()));
    let detail = format!(
        "the stateless side's engine for such a call: {one:.0} ns with 1 connection, {many:.0} ns on any of {MANY}; with both it \
         reads the words and the record of any of {MANY} in the application's memory; engines in one thread, joined by memory, \
         {} by the {} provider; median of the ratios of {ROUNDS} rounds in turns",
        aead::CIPHER,
        aead::chosen().name(),
    );
    Ok(vec![Measured::new(ratio, detail)])
}

pub(super) fn turn(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let portable = ProviderKind::Portable.provider().expect("every processor runs it");
    let measure = |aead| {
        pinned(cores().1, || {
            [Keys::One, Keys::Many].map(|keys| beside_aead::measure(aead, keys, ROUNDS))
        })
    };
    let [one, many] = measure(portable);
    let [fast_one, fast_many] = measure(aead::chosen());
    let words = |SendCost { side, frames, keys }: SendCost| {
        format!(
            "{:.1} ns, its AEAD calls alone {:.1} ns ({frames} frames, {keys} keys)",
            side.turn, side.aead
        )
    };
    let detail = format!(
        "the stateless side's engine for a 32 B SEND to it, in batches of {BATCH}, the worse of: all on one connection, {}; each \
         on another, {}; {} by the {} provider; by the {} one {} and {}",
        words(one),
        words(many),
        aead::CIPHER,
        portable.name(),
        aead::chosen().name(),
        words(fast_one),
        words(fast_many),
    );
    let value = one.side.over_aead().max(many.side.over_aead());
    Ok(vec![Measured::new(value, detail)])
}

pub(super) fn security(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let sealed: &dyn AeadProvider = aead::chosen();
    let [rpc, write] = pinned(cores().1, || {
        [Workload::Rpc, Workload::Write]
            .map(|workload| security::measure(workload, CONNECTIONS, sealed, ROUNDS))
    });
    let words = |Rates { rates }: &Rates| {
        let [bare, listed, sealed] = rates.each_ref().map(Medians::median);
        format!("{bare:.0}/s with neither, {listed:.0}/s with whitelists, {sealed:.0}/s sealed too")
    };
    let common = format!(
        "engines of both sides in one thread, joined by memory, {CONNECTIONS} connections, a protection domain and a memory \
         region each; calls {}; WRITEs of 32 B by the stateful side {}; {} by the {} provider; medians of {ROUNDS} rounds in \
         turns",
        words(&rpc),
        words(&write),
        aead::CIPHER,
        sealed.name(),
    );
    let whitelist = 1.0 - rpc.whitelist_over_bare().min(write.whitelist_over_bare());
    let auth = 1.0 - rpc.sealed_over_whitelist();
    Ok(vec![
        Measured::new(
            whitelist,
            format!("nothing authenticated, the worse of calls and WRITEs; {common}"),
        ),
        Measured::new(
            auth,
            format!("calls, sealed over the paper's form, which has whitelists; {common}"),
        ),
    ])
}

pub(super) fn share(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let sent = pinned(cores().1, || share::measure(aead::chosen(), TURNS));
    let detail = format!(
        "of the frames of an engine in {} of {TURNS} turns, after which both services had more to send: 1RMA {} ({} B), 64 B \
         READs, StaR {} ({} B), 32 B WRITEs to a stateless side; 16 frames leave in a turn",
        sent.turns, sent.one_rma.0, sent.one_rma.1, sent.star.0, sent.star.1,
    );
    Ok(vec![Measured::new(sent.share(), detail)])
}
