//! `docs/dissector.lua` in tshark, where there is one.

use std::process::{Command, Output};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng, seq::IndexedRandom as _};
use rma_lab::evidence::not_run;

use super::*;

/// The first version whose Lua has a cipher.
const WITH_CIPHER: (u32, u32) = (4, 6);

/// The version of tshark. `None` if there is none.
fn version() -> Option<(u32, u32)> {
    let output = Command::new("tshark").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.split_whitespace().find(|it| it.starts_with(|it: char| it.is_ascii_digit()));
    let mut numbers = words?.split('.').map_while(|it| it.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// Has tshark print a capture, without an error of Lua. `None` where there is no tshark.
fn tshark(name: &str, capture: &[u8], arguments: &[&str], key_log: &str) -> Option<String> {
    if version().is_none() {
        not_run(format_args!("{name}: there is no tshark; as root, apt-get install tshark"));
        return None;
    }
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../docs/dissector.lua");
    let path = |of: &str| {
        std::env::temp_dir().join(format!("rma-dissector-{}-{name}.{of}", std::process::id()))
    };
    let [file, keys] = ["pcapng", "keys"].map(path);
    fs::write(&file, capture).unwrap();
    fs::write(&keys, key_log).unwrap();
    let mut command = Command::new("tshark");
    command.args(["-X", script, "-n", "-r"]).arg(&file).args(arguments);
    let Output { status, stdout, stderr } =
        command.env("RMA_KEYLOGFILE", &keys).output().expect("it runs");
    let [said, text] = [stderr, stdout].map(|it| String::from_utf8_lossy(&it).into_owned());
    for path in [file, keys] {
        fs::remove_file(path).unwrap();
    }
    for text in [&said, &text] {
        assert!(!text.to_lowercase().contains("lua error"), "{text}");
    }
    assert!(status.success(), "{said}");
    Some(text)
}

/// The values of fields, of each packet.
fn fields(
    name: &str,
    capture: &[u8],
    fields: &[String],
    key_log: &str,
) -> Option<Vec<Vec<String>>> {
    let mut arguments = vec!["-2", "-T", "fields", "-E", "separator=|"];
    arguments.extend(fields.iter().flat_map(|it| ["-e", it]));
    let text = tshark(name, capture, &arguments, key_log)?;
    let row = |line: &str| line.split('|').map(str::to_owned).collect();
    Some(text.lines().map(row).collect())
}

/// A value of the vectors, as tshark prints it.
fn printed(value: &Value) -> Option<String> {
    match value {
        Value::Bool(it) => Some(u8::from(*it).to_string()),
        Value::Number(it) => Some(it.to_string()),
        Value::String(it) => u64::from_str_radix(it, 16).ok().map(|it| it.to_string()),
        _ => None,
    }
}

/// Compares the fields of golden frames, a packet each, with what our own parser wrote of them.
fn compare(protocol: &str, wire: &str, packets: &[Vec<u8>]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/dissector.lua");
    let script = fs::read_to_string(path).unwrap();
    let all = vectors(wire);
    let frames = all["frames"].as_array().unwrap();
    let of = |frame: &Value| -> BTreeMap<String, String> {
        let parts = ["header", "fields"].map(|it| frame[it].as_object().cloned());
        let values = parts.into_iter().flatten().flatten();
        let values = values.filter(|(name, _)| script.contains(&format!("{{ \"{name}\", ")));
        values.filter_map(|(name, value)| Some((name, printed(&value)?))).collect()
    };
    let names: std::collections::BTreeSet<String> =
        frames.iter().flat_map(|it| of(it).into_keys()).collect();
    let filters: Vec<String> = names.iter().map(|it| format!("{protocol}.{it}")).collect();
    let Some(rows) = fields(wire, &PCAPNG.capture(packets), &filters, "") else { return };
    assert_eq!(rows.len(), frames.len());
    let mut compared = 0;
    for (row, frame) in rows.iter().zip(frames) {
        let expected = of(frame);
        for (name, value) in names.iter().zip(row) {
            if let Some(expected) = expected.get(name) {
                assert_eq!(value, expected, "{name} of {}", frame["name"]);
                compared += 1;
            }
        }
    }
    assert!(compared > 8 * frames.len(), "{compared}");
}

#[test]
fn tshark_shows_the_fields_of_golden_frames() {
    compare("1rma", "1rma-v2", &one_rma().packets);
    compare("star", "star-v1", &star().packets);
}

#[test]
fn tshark_links_what_answers_and_shows_what_was_decrypted() {
    let golden = one_rma();
    let all = vectors("1rma-v2");
    let frames = all["frames"].as_array().unwrap();
    let done = decrypted(&PCAPNG.capture(&golden.packets), &golden.key_log);
    let names = ["1rma.request_in", "1rma.plain", "1rma.payload"].map(str::to_owned);
    let Some(rows) = fields("links", &done.bytes, &names, "") else { return };
    let place = |name: &Value| frames.iter().position(|it| it["name"] == *name);
    for (row, frame) in rows.iter().zip(frames) {
        let mut asked = None;
        let mut of = frame;
        while let Some(at) = place(&of["answers"]) {
            (asked, of) = (Some(at), &frames[at]);
        }
        let expected = asked.map_or(String::new(), |at| (at + 1).to_string());
        assert_eq!(row[0], expected, "{}", frame["name"]);
        if frame["key_name"] != "wrong" {
            assert_eq!((&*row[1], &*row[2]), (text(&frame["plaintext"]), ""), "{}", frame["name"]);
        }
    }
}

#[test]
fn tshark_marks_drops_and_ivs_that_come_twice() {
    let golden = one_rma();
    let mut other = golden.packets[0].clone();
    *other.last_mut().unwrap() ^= 1;
    let mut packets = golden.packets[..7].to_vec();
    packets.extend([golden.packets[0].clone(), other]);
    let mut capture = PCAPNG.capture(&packets[..8]);
    let mut dropped = Vec::new();
    let block = PacketBlock {
        link: 1,
        data: 28..28,
        wire_len: packets[8].len() as u32,
        is_big: false,
        takes_comment: true,
        stamp: None,
    };
    let stamp = Stamp { seconds: 0, fraction: 0 };
    let comment = ["1rma 1/1 drop=WrongTag".to_owned()];
    Out::new(&mut dropped).packet(&stamp, &block, &packets[8], &comment).unwrap();
    capture.extend(dropped);
    let names = ["1rma.failure_in", "_ws.expert.message"].map(str::to_owned);
    let Some(rows) = fields("marks", &capture, &names, "") else { return };
    assert_eq!(rows[5][0], "7", "refused");
    assert!(rows[5][1].contains("refused"), "{rows:?}");
    assert!(rows[7][1].contains("twice in the capture"), "{rows:?}");
    assert!(rows[8][1].contains("an IV for two frames"), "{rows:?}");
    assert!(rows[8][1].contains("dropped by the host: WrongTag"), "{rows:?}");
}

#[test]
fn tshark_decrypts_where_its_lua_can() {
    let golden = one_rma();
    if let Some(found) = version().filter(|it| *it < WITH_CIPHER) {
        not_run(format_args!("decryption in the dissector: tshark {found:?} is before 4.6"));
        return;
    }
    let capture = PCAPNG.capture(&golden.packets);
    let rows = fields("decrypts", &capture, &["1rma.plain".to_owned()], &golden.key_log);
    for (row, plain) in rows.iter().flatten().zip(&golden.plain) {
        let plain = plain.iter().flatten().map(|it| format!("{it:02x}")).collect::<String>();
        assert_eq!(row[0], plain);
    }
}

#[test]
fn no_mutated_frame_is_an_error_of_the_dissector() {
    let golden = [one_rma().packets, star().packets].concat();
    let mut random = SmallRng::seed_from_u64(35);
    let packets: Vec<Vec<u8>> = (0..10_000)
        .map(|_| {
            let mut packet = golden.choose(&mut random).unwrap().clone();
            let frames = packet.len().min(62);
            if random.random_bool(0.3) {
                packet.truncate(random.random_range(frames..=packet.len()));
            }
            for _ in 0..random.random_range(0..5) {
                let at = random.random_range(frames.min(packet.len() - 1)..packet.len());
                packet[at] = *[0, 1, 2, 0xff, random.random()].choose(&mut random).unwrap();
            }
            packet
        })
        .collect();
    if let Some(text) = tshark("mutated", &PCAPNG.capture(&packets), &["-V"], "") {
        let shown = text.lines().filter(|it| matches!(*it, "1RMA" | "StaR")).count();
        assert!(shown > 9_000, "{shown}");
    }
}
