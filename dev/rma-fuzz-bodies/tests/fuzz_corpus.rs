//! The corpus of the fuzz targets, replayed without a fuzzer; and scripts that nobody wrote.

use std::{fs, path::Path};

use rma_core::{crypto::ProviderKind, op::OpStatus};
use rma_fuzz_bodies::{KeysSeen, Seen, StarRingSeen, StarSeen};
use rma_lab::evidence;
use rma_sim::prng::Prng;

fn replay(target: &str, mut body: impl FnMut(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("the directory was readable").path())
        .collect();
    files.sort();
    assert!(files.len() >= 10, "{} has {} files", directory.display(), files.len());
    for file in &files {
        println!("{}", file.display());
        let bytes = fs::read(file);
        body(&bytes.unwrap_or_else(|error| panic!("{}: {error}", file.display())));
    }
    evidence::show(format_args!("fuzzers' corpus {target}: {} inputs replayed", files.len()));
}

#[test]
fn the_wire_corpus_breaks_no_promise() {
    replay("wire", rma_fuzz_bodies::wire);
}

#[test]
fn the_packet_corpus_breaks_no_promise() {
    replay("packet", rma_fuzz_bodies::packet);
}

#[test]
fn the_aead_corpus_breaks_no_promise() {
    replay("aead", rma_fuzz_bodies::aead);
    for error in ProviderKind::ALL.into_iter().filter_map(|kind| kind.provider().err()) {
        evidence::not_run(format_args!("fuzzers' corpus aead with {}: {error}", error.kind));
    }
}

#[test]
fn the_nic_corpus_breaks_no_promise_and_reaches_every_status() {
    let mut total = [0; OpStatus::ALL.len()];
    replay("nic", |script| {
        let statuses = rma_fuzz_bodies::nic(script);
        total.iter_mut().zip(statuses).for_each(|(sum, count)| *sum += count);
    });
    for status in OpStatus::ALL {
        assert!(total[status as usize] > 0, "no op ended with {status}");
    }
}

#[test]
fn the_ring_corpus_breaks_no_promise_and_breaks_rules_of_all_kinds() {
    let (mut statuses, mut impossible, mut refused) = ([0; OpStatus::ALL.len()], 0, 0);
    replay("ring", |script| {
        let Some(counters) = rma_fuzz_bodies::ring(script) else { return };
        for status in OpStatus::ALL {
            statuses[status as usize] += counters.completions(status);
        }
        impossible += counters.impossible_indexes();
        refused += counters.commands_refused();
    });
    for (status, count) in OpStatus::ALL.into_iter().zip(statuses) {
        // Tables have room for everybody, and the regions' owners may do everything with them.
        let unlikely = [
            OpStatus::Nack,
            OpStatus::DispatchTimeout,
            OpStatus::RemotePermissionDenied,
            OpStatus::RemoteNotReady,
        ];
        assert!(count > 0 || unlikely.contains(&status), "no op ended with {status}");
    }
    assert!(impossible > 0 && refused > 0, "{impossible} {refused}");
}

#[test]
fn the_record_corpus_breaks_no_promise_and_tells_of_what_cannot_be() {
    let mut total = Seen::default();
    replay("record", |script| add(&mut total, rma_fuzz_bodies::record(script)));
    show(format_args!("its corpus"), total);
}

#[test]
fn the_star_wire_corpus_breaks_no_promise() {
    replay("star_wire", rma_fuzz_bodies::star_wire);
}

#[test]
fn the_star_station_corpus_breaks_no_promise_and_gets_something_done() {
    let mut total = StarSeen::default();
    replay("star_station", |script| {
        let StarSeen { frames, done, failed } = rma_fuzz_bodies::star_station(script);
        total.frames += frames;
        total.done += done;
        total.failed += failed;
    });
    assert!(total.done > 20 && total.failed > 2, "{total:?}");
}

#[test]
fn the_star_ring_corpus_breaks_no_promise_and_breaks_rules_of_all_kinds() {
    let mut total = StarRingSeen::default();
    replay("star_ring", |script| add_ring(&mut total, rma_fuzz_bodies::star_ring(script)));
    assert!(total.refused > 0 && total.lost > 0 && total.rounds > 20, "{total:?}");
}

#[test]
fn the_keys_corpus_breaks_no_promise_and_gets_something_done() {
    let mut total = KeysSeen::default();
    replay("keys", |script| add_keys(&mut total, rma_fuzz_bodies::keys(script)));
    let KeysSeen { read, granted, ok, renewed } = total;
    assert!(read > 5 && granted > 0 && ok > 5 && renewed > 10, "{total:?}");
}

#[test]
fn the_policy_and_the_certificate_corpus_break_no_promise_and_are_not_all_bad() {
    let mut good = [0, 0];
    replay("policy", |text| good[0] += u32::from(rma_fuzz_bodies::policy(text)));
    replay("certificate", |octets| good[1] += u32::from(rma_fuzz_bodies::certificate(octets)));
    assert!(good.iter().all(|&it| it > 4), "{good:?}");
}

/// Random bytes are no messages; as scripts of a client they are as good as any.
#[test]
fn scripts_of_clients_of_a_key_service_break_no_promise() {
    const SCRIPTS: usize = 20_000;
    let mut prng = Prng::new(6);
    let mut total = KeysSeen::default();
    for _ in 0..SCRIPTS {
        let mut script = vec![0; 1 + prng.magnitude(200) as usize];
        prng.fill(&mut script);
        script[0] = 2;
        for octet in &mut script {
            // Often an op that is OK.
            if prng.below(8) == 0 {
                *octet = 0;
            }
        }
        add_keys(&mut total, rma_fuzz_bodies::keys(&script));
    }
    let KeysSeen { ok, renewed, .. } = total;
    evidence::show(format_args!(
        "fuzz target keys: {SCRIPTS} scripts of clients, in which {ok} ops were OK and {renewed} \
         answers brought other keys"
    ));
    assert!(ok > 1000 && renewed > 1000, "{total:?}");
}

fn add_keys(total: &mut KeysSeen, seen: KeysSeen) {
    total.read += seen.read;
    total.granted += seen.granted;
    total.ok += seen.ok;
    total.renewed += seen.renewed;
}

#[test]
fn random_scripts_break_no_promise() {
    const SCRIPTS: usize = 2000;
    let mut prng = Prng::new(1);
    for _ in 0..SCRIPTS {
        let mut script = vec![0; prng.magnitude(400) as usize];
        prng.fill(&mut script);
        rma_fuzz_bodies::nic(&script);
        rma_fuzz_bodies::wire(&script);
        rma_fuzz_bodies::packet(&script);
        rma_fuzz_bodies::ring(&script);
        rma_fuzz_bodies::record(&script);
        rma_fuzz_bodies::star_wire(&script);
        rma_fuzz_bodies::star_station(&script);
        rma_fuzz_bodies::star_ring(&script);
        rma_fuzz_bodies::keys(&script);
        rma_fuzz_bodies::policy(&script);
        rma_fuzz_bodies::certificate(&script);
    }
    evidence::show(format_args!(
        "fuzz targets nic, wire, packet, ring, record, StaR's and the key service's: {SCRIPTS} random \
         scripts each"
    ));
}

/// Random bytes deliver few frames: these scripts mostly move frames about.
#[test]
fn scripts_of_honest_steps_break_no_promise() {
    const SCRIPTS: usize = 3000;
    let mut prng = Prng::new(2);
    let mut succeeded = 0;
    for _ in 0..SCRIPTS {
        let mut script = vec![0; 5];
        prng.fill(&mut script);
        for _ in 0..60 {
            let host = 0x80 * prng.below(2) as u8;
            let slot = prng.below(8) as u8;
            match prng.below(12) {
                // A recorded op; a receive is posted; an op is asked about.
                8 | 9 => {
                    let kind = 0x20 | prng.below(6) as u8;
                    script.extend([host | kind, 0x40 * prng.below(2) as u8, slot]);
                    script.extend([prng.below(16) as u8, prng.below(256) as u8]);
                }
                10 => script.push(host | 0x27),
                11 => script.extend([host | 0x2a, prng.below(3) as u8, prng.below(6) as u8, slot]),
                0 => {
                    let mut size_and_offset = [0; 4];
                    prng.fill(&mut size_and_offset);
                    // A read, a write or a rekey.
                    let flags = prng.choose(&[0, 0x40, 0x40, 0x60]);
                    script.extend([host, flags, slot]);
                    script.extend(size_and_offset);
                }
                1 | 2 => script.push(host | 3),
                // Now and then its engine is stopped in the midst of it.
                3 if prng.below(16) == 0 => script.extend([0x15, 9, 0, prng.below(4) as u8]),
                3 | 4 => script.extend([5, prng.below(4) as u8]),
                5 if prng.below(2) == 0 => {
                    // A packet of the last frames, whole or changed.
                    let changed = prng.below(2) as u8;
                    script.extend([8, prng.below(6) as u8, changed, prng.below(200) as u8, 1, 0]);
                }
                5 => script.extend([7, prng.below(4) as u8, 0, 0, prng.below(60) as u8, 1]),
                6 => script.push(host | 13),
                _ => script.extend([11, prng.below(256) as u8, 0, 1]),
            }
        }
        succeeded += rma_fuzz_bodies::nic(&script)[OpStatus::Ok as usize];
    }
    evidence::show(format_args!(
        "fuzz target nic: {SCRIPTS} scripts of honest steps, in which {succeeded} ops were OK"
    ));
    assert!(succeeded > 100, "{succeeded}");
}

/// Scripts in which channels are used, and now and then something is written that is nobody's to
/// write; in random bytes there is more of that than messages.
#[test]
fn scripts_of_channels_break_no_promise() {
    const SCRIPTS: usize = 20_000;
    // Steps of ends and engines, the last three of which are hostile; and how many operands each
    // of the sixteen has.
    const STEPS: &[u8] = &[0, 0, 0, 2, 2, 2, 4, 5, 6, 6, 7, 7, 8, 9, 10, 11, 12, 12, 15];
    const OPERANDS: [usize; 16] = [1, 1, 0, 0, 1, 0, 0, 1, 2, 1, 1, 0, 7, 7, 7, 9];
    let mut prng = Prng::new(3);
    let mut total = Seen::default();
    for _ in 0..SCRIPTS {
        let mut script = vec![0; 2];
        prng.fill(&mut script);
        let hostile = 3 * prng.below(2) as usize;
        for _ in 0..prng.below(150) {
            let step = prng.choose(&STEPS[..STEPS.len() - hostile]);
            let mut operands = vec![0; OPERANDS[usize::from(step)]];
            prng.fill(&mut operands);
            script.push(step | (prng.below(16) as u8) << 4);
            script.extend(operands);
        }
        add(&mut total, rma_fuzz_bodies::record(&script));
    }
    show(format_args!("{SCRIPTS} scripts"), total);
}

fn add(total: &mut Seen, seen: Seen) {
    total.claimed += seen.claimed;
    total.malformed += seen.malformed;
    total.malformed_tails += seen.malformed_tails;
}

/// Shows the events of scripts for `record`: all that there is to happen.
fn show(scripts: core::fmt::Arguments<'_>, total: Seen) {
    let Seen { claimed, malformed, malformed_tails } = total;
    evidence::show(format_args!(
        "fuzz target record: {scripts}, in which {claimed} messages were claimed, and {malformed} receivers and \
         {malformed_tails} senders were told what cannot be"
    ));
    assert!(claimed > 100 && malformed > 5 && malformed_tails > 5, "{total:?}");
}

/// Random bytes make few work requests that fit each other: here nine steps of ten post one, let
/// time pass, or deliver what is on the network.
#[test]
fn scripts_of_star_break_no_promise_and_get_something_done() {
    const SCRIPTS: usize = 3000;
    let mut prng = Prng::new(4);
    let (mut done, mut failed, mut frames) = (0, 0, 0);
    for _ in 0..SCRIPTS {
        let mut script = vec![0; prng.magnitude(600) as usize];
        prng.fill(&mut script);
        for octet in &mut script {
            if prng.below(10) < 4 {
                *octet = [0, 1, 2, 7][prng.below(4) as usize];
            }
        }
        let seen = rma_fuzz_bodies::star_station(&script);
        done += seen.done;
        failed += seen.failed;
        frames += seen.frames;
    }
    assert!(done > 0 && failed > 0, "{done} done, {failed} failed");
    evidence::show(format_args!(
        "fuzz target star_station: {SCRIPTS} scripts, {frames} frames, {done} work requests done, \
         {failed} failed"
    ));
}

/// Random bytes mostly break indexes: here every other step is a turn or a post.
#[test]
fn scripts_of_star_portals_break_no_promise() {
    const SCRIPTS: usize = 1000;
    const OPERANDS: [usize; 12] = [0, 0, 3, 2, 2, 2, 2, 8, 8, 32, 5, 2];
    let mut prng = Prng::new(5);
    let mut total = StarRingSeen::default();
    for _ in 0..SCRIPTS {
        let mut script = vec![0; 1];
        prng.fill(&mut script);
        for _ in 0..prng.below(120) {
            let host = 0x80 * prng.below(2) as u8;
            // A turn, a work request, a command, a word; now and then anything.
            let anything = prng.below(12) as u8;
            let step = prng.choose(&[0, 0, 0, 0, 7, 7, 8, 11, 11, 10, anything]);
            // Steps are taken modulo twelve.
            script.push(if host == 0 { step } else { 132 + step });
            let mut operands = vec![0; OPERANDS[usize::from(step)]];
            prng.fill(&mut operands);
            script.extend(operands);
        }
        add_ring(&mut total, rma_fuzz_bodies::star_ring(&script));
    }
    let StarRingSeen { rounds, frames, refused, lost } = total;
    evidence::show(format_args!(
        "fuzz target star_ring: {SCRIPTS} scripts, {frames} frames, {rounds} rounds of honest \
         applications, {refused} posts refused, {lost} reports lost"
    ));
    assert!(refused > 100 && rounds > 1000, "{total:?}");
}

fn add_ring(total: &mut StarRingSeen, seen: StarRingSeen) {
    total.rounds += seen.rounds;
    total.frames += seen.frames;
    total.refused += seen.refused;
    total.lost += seen.lost;
}
