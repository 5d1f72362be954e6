//! Seeds of the key service's targets: its golden messages, stories of a client, policies, and
//! certificates.

use std::{collections::BTreeMap, fs, io};

type Files = BTreeMap<String, Vec<u8>>;

/// The golden messages, what lies just outside, and stories.
pub(crate) fn messages() -> io::Result<Files> {
    let text = fs::read_to_string("docs/vectors/keys-v1.json")?;
    let mut files = Files::new();
    let (replies, requests) = text.split_once("\"requests\":").unwrap_or_default();
    for (kind, half) in [(1, replies), (0, requests)] {
        for (number, line) in half.lines().filter(|it| it.contains("\"octets\":")).enumerate() {
            let hex = line.trim().trim_start_matches("\"octets\": \"");
            let octets = octets(hex.trim_end_matches(',').trim_end_matches('"'));
            let whole = [&[kind][..], &octets].concat();
            let name = if kind == 0 { "request" } else { "reply" };
            files.insert(format!("{name}-{number}-cut-off"), whole[..whole.len() - 1].to_vec());
            files.insert(format!("{name}-{number}-and-more"), [&whole[..], &[0]].concat());
            files.insert(format!("{name}-{number}"), whole);
        }
    }
    for (name, octets) in [
        ("request-name-of-4-gib", &b"\xa5\0\x01\x01\x09\x02\x81\x44\xc0\0\x02\x01\x03\x07\x04\x81\xa2\0\x7b\0\0\0\x01\0\0\0\0"[..]),
        ("request-climbs", b"\xa5\0\x01\x01\x09\x02\x81\x44\xc0\0\x02\x01\x03\x07\x04\x81\xa2\0\x65kv/..\x01\x81\x01"),
        ("request-granted", b"\xa5\0\x01\x01\x09\x02\x81\x44\xc0\0\x02\x01\x03\x07\x04\x81\xa2\0\x68kv/index\x01\x81\x01"),
        ("request-denied", b"\xa5\0\x01\x01\x09\x02\x81\x44\xc0\0\x02\x01\x03\x07\x04\x81\xa2\0\x66secret\x01\x81\x01"),
        ("request-version-2", b"\xa1\0\x02"),
        ("request-nested", b"\xa6\0\x01\x01\x09\x02\x81\x44\xc0\0\x02\x01\x03\x07\x04\x81\xa2\0\x62kv\x01\x81\x01\x18\x63\x81\x81\x81\x81\xf6"),
    ] {
        files.insert(name.into(), [&[0], octets].concat());
    }
    // A client: what the service gives, how ops end, time, and losses.
    const GIVES: u8 = 0;
    const ENDS: u8 = 2;
    const PASSES: u8 = 4;
    const LOST: u8 = 5;
    let (present, both) = (
        |number| vec![GIVES, 0, number, 0, 20, 20],
        |number: u8| vec![GIVES, 0x10, number, number + 1, 20, 20, 20],
    );
    let again = |number: u8| [vec![PASSES, 15], present(number)].concat();
    for (name, story) in [
        ("client-ok", [present(1), vec![ENDS, 0, ENDS, 0]].concat()),
        ("client-refused", [present(1), vec![ENDS, 1], again(2), vec![ENDS, 0]].concat()),
        ("client-announced", [both(1), vec![ENDS, 0, ENDS, 1, ENDS, 0, ENDS, 1]].concat()),
        (
            "client-late-answer",
            [both(4), vec![ENDS, 1, ENDS, 0, LOST | 0x80], again(3), vec![ENDS, 0]].concat(),
        ),
        (
            "client-other-life",
            [present(9), vec![ENDS, 0, LOST | 0x80], again(0x41), vec![ENDS, 0]].concat(),
        ),
        (
            "client-twice",
            [vec![GIVES | 0x42, 0, 1, 0, 20, 20, 0, 2, 0, 20, 20], vec![ENDS, 0]].concat(),
        ),
        ("client-denied", vec![GIVES, 5, PASSES, 10, GIVES, 0, 1, 0, 20, 20, ENDS, 0]),
        ("client-turned-away", vec![GIVES, 7, PASSES, 12, GIVES, 0, 1, 0, 20, 20, ENDS, 0]),
        (
            "client-silence",
            [present(1), vec![ENDS, 3, ENDS, 3, ENDS, 3, PASSES, 18], again(2)].concat(),
        ),
        (
            "client-spurious",
            [present(1), vec![ENDS, 1], again(1), vec![ENDS, 1], again(1)].concat(),
        ),
        ("client-lost", vec![PASSES | 0x80, 3, LOST, PASSES, 14, GIVES, 0, 1, 0, 20, 20, ENDS, 0]),
    ] {
        files.insert(name.into(), [vec![2], story].concat());
    }
    Ok(files)
}

fn octets(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let octet = |it| u8::from_str_radix(str::from_utf8(it).unwrap_or("00"), 16).unwrap_or(0);
    digits.map(octet).collect()
}

/// Policies, good and bad.
pub(crate) fn policies() -> Files {
    let whole = "[[allow]]\nregion = \"kv/*\"\nidentity = \"spiffe://example.org/kv/client/*\"\n\
                 ops = [\"read\"]\ninitiators = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n\
                 until = \"2027-01-01T00:00:00Z\"\nlifetime = \"1h\"\n\n[[refuse]]\n\
                 identity = \"spiffe://example.org/kv/client/13\"\nserial = \"0a1b\"\n";
    let changed = |from: &str, to: &str| whole.replacen(from, to, 1);
    [
        ("whole", whole.to_owned()),
        ("empty", String::new()),
        ("nobody", "allow = []".into()),
        ("overlapping", whole.to_owned() + whole),
        ("any", changed("kv/*", "**")),
        ("star-in-a-segment", changed("kv/*", "kv-*")),
        ("star-in-the-domain", changed("example.org", "*")),
        ("unknown-field", changed("until", "untill")),
        ("lapsed", changed("2027", "2001")),
        ("toml-date", changed("\"2027-01-01T00:00:00Z\"", "2027-01-01T01:30:00+01:30")),
        ("day-alone", changed("\"2027-01-01T00:00:00Z\"", "2027-01-01")),
        ("prefix-33", changed("0/24", "0/33")),
        ("host-bits", changed("0/24", "1/24")),
        ("25-hours", changed("1h", "25h")),
        ("climbs", changed("kv/*", "../*")),
        ("no-string", changed("\"1h\"", "3600")),
        ("control-characters", changed("kv/*", "\\u0007\\n")),
        ("cut-off", whole[..whole.len() / 2].into()),
        ("nested", "allow = ".to_owned() + &"[".repeat(200)),
    ]
    .map(|(name, text)| (name.to_owned(), text.into_bytes()))
    .into()
}

/// An element of DER.
fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    let len = contents.len();
    let head = match len {
        0..=0x7f => vec![tag, len as u8],
        0x80..=0xff => vec![tag, 0x81, len as u8],
        _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
    };
    [head, contents.to_vec()].concat()
}

/// The parts of a certificate.
struct Parts {
    serial: Vec<u8>,
    validity: Vec<u8>,
    names: Vec<Vec<u8>>,
    unique: Vec<u8>,
}

impl Parts {
    fn good() -> Self {
        let dates = [der(0x17, b"261123000000Z"), der(0x18, b"21200101000000Z")].concat();
        let names = vec![der(0x86, b"spiffe://example.org/kv/client/7")];
        Self { serial: der(2, &[0, 0x8a, 0x1b]), validity: dates, names, unique: Vec::new() }
    }

    fn der(self) -> Vec<u8> {
        let names = der(0x30, &self.names.concat());
        let names = der(0x30, &[der(6, &[0x55, 0x1d, 0x11]), der(4, &names)].concat());
        let signs = der(0x30, &der(1, &[0xff]));
        let critical = der(1, &[0xff]);
        let signs = der(0x30, &[der(6, &[0x55, 0x1d, 0x13]), critical, der(4, &signs)].concat());
        let extensions = der(0xa3, &der(0x30, &[names, signs].concat()));
        let algorithm = der(0x30, &der(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]));
        let (issuer, subject, key) = (der(0x30, &[]), der(0x30, &[]), der(0x30, &algorithm));
        let version = der(0xa0, &der(2, &[2]));
        let validity = der(0x30, &self.validity);
        let parts = [version, self.serial, algorithm.clone(), issuer, validity, subject, key];
        let body = der(0x30, &[parts.concat(), self.unique, extensions].concat());
        der(0x30, &[body, algorithm, der(3, &[0, 1, 2, 3])].concat())
    }
}

/// Certificates, good and bad: of their form, as none of them is signed.
pub(crate) fn certificates() -> Files {
    let with = |change: fn(&mut Parts)| {
        let mut parts = Parts::good();
        change(&mut parts);
        parts.der()
    };
    let good = Parts::good().der();
    let mut indefinite = good.clone();
    indefinite[1] = 0x80;
    let mut long_form = good.clone();
    long_form.splice(1..2, [0x83, 0]);
    [
        ("good", good.clone()),
        ("two-uris", with(|it| it.names.push(der(0x86, b"spiffe://example.org/b")))),
        ("no-uri", with(|it| it.names.clear())),
        ("dns-alone", with(|it| it.names = vec![der(0x82, b"kv.example.org")])),
        ("dns-too", with(|it| it.names.push(der(0x82, b"kv.example.org")))),
        ("uri-climbs", with(|it| it.names = vec![der(0x86, b"spiffe://example.org/a/../b")])),
        ("uri-no-text", with(|it| it.names = vec![der(0x86, &[0xc3, 0x28])])),
        ("many-names", with(|it| it.names = vec![der(0x87, &[192, 0, 2, 1]); 300])),
        ("serial-of-20", with(|it| it.serial = der(2, &[0x7f; 20]))),
        ("serial-of-21", with(|it| it.serial = der(2, &[0x7f; 21]))),
        ("serial-empty", with(|it| it.serial = der(2, &[]))),
        ("date-of-month-13", with(|it| it.validity = der(0x17, b"261323000000Z").repeat(2))),
        ("date-without-zone", with(|it| it.validity = der(0x17, b"261123000000").repeat(2))),
        ("date-alone", with(|it| it.validity = der(0x17, b"261123000000Z"))),
        ("date-no-digits", with(|it| it.validity = der(0x18, b"2026112300000xZ").repeat(2))),
        ("unique-ids", with(|it| it.unique = [der(0x81, &[0, 1]), der(0x82, &[0, 2])].concat())),
        ("indefinite-length", indefinite),
        ("length-in-a-longer-form", long_form),
        ("cut-off", good[..good.len() / 2].to_vec()),
        ("empty", Vec::new()),
    ]
    .map(|(name, octets)| (name.to_owned(), octets))
    .into_iter()
    .chain(files(&good).map(|(name, text)| (name.to_owned(), text.into_bytes())))
    .chain([("pem-utf-16".to_owned(), utf16(&format!("{BOM}{}", pem(&good))))])
    .collect()
}

const BOM: char = '\u{feff}';

/// The same certificate in files, as editors and tools make them.
fn files(good: &[u8]) -> [(&'static str, String); 11] {
    let pem = pem(good);
    let key = pem.replace("CERTIFICATE", "EC PRIVATE KEY");
    let (begin, rest) = pem.split_once('\n').expect("it has lines");
    let text = format!("Bag Attributes\n    localKeyID: 54\n# {begin}\n{pem}subject=x\n{pem}");
    [
        ("pem", pem.clone()),
        ("pem-marked", format!("{BOM}{pem}{BOM}{pem}")),
        ("pem-windows", pem.replace('\n', "\r\n")),
        ("pem-old-mac", pem.replace('\n', "\r")),
        ("pem-with-text", text),
        ("pem-with-key", format!("{key}{pem}")),
        ("pem-put-together", format!("{}{pem}", pem.trim_end())),
        ("pem-begins-no-more", rest.to_owned()),
        ("pem-cut-off", pem[..pem.len() / 2].to_owned()),
        ("pem-trusted", pem.replace("CERTIFICATE", "TRUSTED CERTIFICATE")),
        ("pem-encrypted", key.replacen("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\n\n", 1)),
    ]
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn pem(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut digits = String::new();
    for three in der.chunks(3) {
        let (len, all) = (three.len(), three.iter().fold(0, |all, &it| all << 8 | u32::from(it)));
        let all = all << (8 * (3 - len));
        for at in 0..4 {
            let digit = DIGITS[(all >> (18 - 6 * at)) as usize & 63];
            digits.push(if at <= len { digit.into() } else { '=' });
        }
    }
    let lines: Vec<&str> =
        (0..digits.len()).step_by(64).map(|at| &digits[at..digits.len().min(at + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}
