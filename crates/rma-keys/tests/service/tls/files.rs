//! Files as editors, shells and tools have made them: read, or refused in words of their own. No
//! certificate is left aside in silence.

use std::{fs, path::Path};

use rcgen::{PKCS_RSA_SHA256, PublicKeyData, SignatureAlgorithm};
use rma_keys::{
    time::WallTime,
    tls::{
        directory::{Directory, DirectoryError},
        pem,
        trust::Side,
    },
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};

use crate::{
    ca::{CLIENT, Ca, Issued, NOON_MS, SERVER, params},
    tls::directory::Scratch,
};

const BOM: &str = "\u{feff}";

/// A way in which a file is written.
type Form = (&'static str, fn(&str) -> Vec<u8>);

/// All that a section can stand in without becoming another.
const FORMS: [Form; 9] = [
    ("as it is", |pem| pem.into()),
    ("with a byte-order mark", |pem| format!("{BOM}{pem}").into()),
    ("with one before each section", |pem| pem.replace("-----BEGIN", "\u{feff}-----BEGIN").into()),
    ("with ends of lines of Windows", |pem| pem.replace('\n', "\r\n").into()),
    ("with those of an old Mac", |pem| pem.replace('\n', "\r").into()),
    ("indented, with blanks at the end", |pem| pem.replace('\n', " \t\n    ").into()),
    ("without an end of the last line", |pem| pem.trim_end().into()),
    ("with blank lines", |pem| pem.replace('\n', "\n\n").into()),
    ("with text between", |pem| {
        let mut latin1 =
            b"Bag Attributes\n    friendlyName: M\xfcller\n    localKeyID: 54 69\nsubject=CN = x\n"
                .to_vec();
        latin1.extend_from_slice(b"# an old one:\n# -----BEGIN CERTIFICATE-----\n");
        latin1.extend_from_slice(
            pem.replace("-----END CERTIFICATE-----", "-----END CERTIFICATE-----\n --- next ---")
                .as_bytes(),
        );
        latin1
    }),
];

fn says(path: &Path) -> String {
    Directory::open(path).map(drop).unwrap_err().to_string()
}

fn opens(path: &Path, what: &str) {
    let (_, credentials) = Directory::open(path).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(credentials.identity().as_str(), CLIENT, "{what}");
}

#[test]
fn each_file_is_read_in_every_form_and_no_root_of_a_bundle_vanishes() {
    let scratch = Scratch::new();
    let path = scratch.path();
    let roots = ["one", "two", "three"].map(Ca::new);
    let bundle: String = roots.iter().map(Ca::pem).collect();
    // One's own bundle verifies one's own certificate, so each root is missed if it vanishes.
    for (ca, (what, form)) in roots.iter().flat_map(|ca| FORMS.map(|form| (ca, form))) {
        ca.write(path, CLIENT);
        fs::write(path.join("bundle.pem"), form(&bundle)).unwrap();
        opens(path, what);
        for file in ["cert.pem", "key.pem"] {
            ca.write(path, CLIENT);
            let pem = fs::read_to_string(path.join(file)).unwrap();
            fs::write(path.join(file), form(&pem)).unwrap();
            opens(path, what);
        }
    }
    // A file of another tool's, which has the key as well.
    let issued = roots[0].issue(&params(&[CLIENT]));
    roots[0].write_issued(path, &issued);
    let both = format!("{}{}", issued.key_pem, issued.chain_pem);
    fs::write(path.join("cert.pem"), &both).unwrap();
    fs::write(path.join("key.pem"), &both).unwrap();
    opens(path, "both in one");
}

#[test]
fn keys_are_read_in_each_form_that_tools_write() {
    let (ca, scratch) = (Ca::new("root"), Scratch::new());
    let path = scratch.path();
    let issued = ca.issue(&params(&[CLIENT]));
    ca.write_issued(path, &issued);
    // PKCS#8 ends with an octet string that is the key in SEC1.
    let PrivateKeyDer::Pkcs8(pkcs8) = issued.key() else { panic!("rcgen writes PKCS#8") };
    let der = pkcs8.secret_pkcs8_der();
    let begins = der.windows(6).rposition(|it| it[0] == 0x30 && it[2..] == [2, 1, 1, 4]).unwrap();
    let sec1 = section("EC PRIVATE KEY", &der[begins..]);
    let parameters = section("EC PARAMETERS", &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7]);
    for key in [sec1.clone(), format!("{parameters}{sec1}")] {
        fs::write(path.join("key.pem"), key).unwrap();
        opens(path, "SEC1");
    }
    let pkcs1 = pem::private_key(section("RSA PRIVATE KEY", &[0x30, 0]).as_bytes()).unwrap();
    assert!(matches!(pkcs1, PrivateKeyDer::Pkcs1(_)));
}

/// A section of PEM.
fn section(label: &str, der: &[u8]) -> String {
    let lines: Vec<String> = base64(der).as_bytes().chunks(64).map(text).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn text(octets: &[u8]) -> String {
    String::from_utf8(octets.to_vec()).unwrap()
}

fn base64(octets: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in octets.chunks(3) {
        let all =
            three.iter().fold(0, |all, &it| all << 8 | u32::from(it)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = DIGITS[(all >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= three.len() { digit.into() } else { '=' });
        }
    }
    out
}

fn utf16(text: &str) -> Vec<u8> {
    core::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

#[test]
fn each_way_in_which_a_file_is_not_what_it_should_be_has_words_of_its_own() {
    let (ca, scratch) = (Ca::new("root"), Scratch::new());
    let path = scratch.path();
    let issued = ca.issue(&params(&[CLIENT]));
    let cases = |file: &str, pem: &str| -> Vec<(Vec<u8>, &'static str)> {
        let is_key = file == "key.pem";
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map(|it| it.secret_der().to_vec());
        let der = der.unwrap_or_else(|_| issued.chain[0].to_vec());
        let mut cases: Vec<(Vec<u8>, &'static str)> = vec![
            (utf16(pem), "UTF-16"),
            (der, "binary"),
            (Vec::new(), "it is empty"),
            (b" \n\n".to_vec(), "it is empty"),
            (pem.replacen("-----BEGIN ", "----BEGIN ", 1).into(), "line 1 is no line"),
            (format!("x{pem}").into(), "line 1 is no line"),
            (pem.replacen("----\n", "----", 1).into(), "line 1 is no line"),
            (pem.replace("-----END ", "-----EMD ").into(), "is no line"),
            (pem[..pem.len() / 2].into(), "the section that begins at line 1 is cut off"),
            (pem.replacen("\nM", "\n!", 1).into(), "begins at line 1 is not base64"),
        ];
        let none = if is_key { "no private key" } else { "no certificate" };
        cases.push((b"a text\n".to_vec(), none));
        if is_key {
            let encrypted = pem.replace("PRIVATE", "ENCRYPTED PRIVATE");
            let legacy = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: x\n\nAAAA\n-----END EC PRIVATE KEY-----\n";
            cases.extend([
                (encrypted.into(), "is an encrypted key; nobody is there"),
                (legacy.into(), "is an encrypted key; nobody is there"),
                (pem.replace("PRIVATE", "OPENSSH PRIVATE").into(), "a key of OpenSSH"),
                (format!("{pem}{pem}").into(), "it holds 2 private keys"),
                (issued.chain_pem.clone().into(), "no private key"),
                (pem.replace("PRIVATE", "PUBLIC").into(), "no private key"),
            ]);
        } else {
            let other = |label| section(label, b"other");
            let label = |label: &str| pem.replace("CERTIFICATE", label).into();
            cases.extend([
                (pem.trim_end().repeat(2).into(), "is no line"),
                (pem.replacen("-----BEGIN CERTIFICATE-----\n", "", 1).into(), "is no line"),
                (pem.replace("-----BEGIN", "\u{2013}\u{2013}BEGIN").into(), "line 1 is no line"),
                (pem.replace("-----END CERTIFICATE-----\n", "").repeat(2).into(), "is cut off"),
                (label("TRUSTED CERTIFICATE"), "notes on trust"),
                (label("CERTIFICATE REQUEST"), "a request"),
                (format!("{pem}{}", other("PKCS7")).into(), "PKCS#7"),
                (format!("{pem}{}", other("X509 CRL")).into(), "were revoked"),
                (format!("{pem}{}", other("SURPRISE")).into(), "not known here"),
                (issued.key_pem.clone().into(), "no certificate"),
            ]);
        }
        cases
    };
    for file in ["cert.pem", "key.pem", "bundle.pem"] {
        ca.write_issued(path, &issued);
        let pem = fs::read_to_string(path.join(file)).unwrap();
        for (octets, words) in cases(file, &pem) {
            ca.write_issued(path, &issued);
            fs::write(path.join(file), &octets).unwrap();
            let error = says(path);
            assert!(error.contains(file) && error.contains(words), "{words}: {error}");
        }
    }
}

#[test]
fn a_chain_is_read_in_any_order_and_its_root_is_not_sent() {
    let scratch = Scratch::new();
    let path = scratch.path();
    let root = Ca::new("root");
    let upper = root.intermediate("upper");
    let lower = upper.intermediate("lower");
    let issued = lower.issue(&params(&[CLIENT]));
    let all = [issued.chain_pem.clone(), lower.pem(), upper.pem(), root.pem()];
    let write = |order: &[usize]| {
        let chain_pem = order.iter().map(|&at| all[at].as_str()).collect();
        let (chain, key_pem) = (Vec::new(), issued.key_pem.clone());
        root.write_issued(path, &Issued { chain, chain_pem, key_pem });
    };
    for order in [
        &[0, 1, 2][..],
        &[2, 1, 0],
        &[1, 0, 2],
        &[0, 2, 1],
        &[0, 1, 2, 3],
        &[3, 2, 1, 0],
        &[2, 0, 3, 1],
    ] {
        write(order);
        opens(path, &format!("{order:?}"));
    }
    // The missing certificates between, which only others would have found.
    write(&[0, 2]);
    assert!(says(path).contains("cert.pem: certificate 2 has signed none"), "{}", says(path));
    write(&[0, 1]);
    let error = says(path);
    let words = "cert.pem: bundle.pem beside it does not verify it: the certificate of";
    assert!(error.contains(words), "{error}");
    // Another root's: nothing of the bundle vanishes, and it does not verify.
    write(&[0, 1, 2]);
    fs::write(path.join("bundle.pem"), Ca::new("root").pem()).unwrap();
    assert!(says(path).contains("does not verify"), "{}", says(path));
    // Two that are somebody's own, and one too many between.
    let other = root.issue(&params(&[SERVER])).chain_pem;
    root.write_issued(
        path,
        &Issued {
            chain: Vec::new(),
            chain_pem: format!("{}{other}", all.concat()),
            key_pem: issued.key_pem.clone(),
        },
    );
    assert!(says(path).contains("certificates 1 and 5 are both somebody's own"), "{}", says(path));
    let lowest = lower.intermediate("lowest");
    let issued = lowest.issue(&params(&[CLIENT]));
    let chain_pem = [&issued.chain_pem, &lowest.pem(), &all[1], &all[2], &all[3]]
        .map(|it| it.as_str())
        .concat();
    root.write_issued(
        path,
        &Issued { chain: Vec::new(), chain_pem, key_pem: issued.key_pem.clone() },
    );
    assert!(says(path).contains("a chain of 4 certificates, the root aside"), "{}", says(path));
}

/// A key of RSA, as far as certificates show it.
struct Rsa(Vec<u8>);

impl PublicKeyData for Rsa {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_RSA_SHA256
    }
}

fn rsa(bits: usize) -> Rsa {
    let mut modulus = vec![0xc1; bits / 8];
    modulus.insert(0, 0);
    Rsa(sequence(&[element(2, &modulus), element(2, &[1, 0, 1])].concat()))
}

fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let len = contents.len();
    let head = match len {
        0..=0x7f => vec![tag, len as u8],
        0x80..=0xff => vec![tag, 0x81, len as u8],
        _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
    };
    [head, contents.to_vec()].concat()
}

fn sequence(contents: &[u8]) -> Vec<u8> {
    element(0x30, contents)
}

#[test]
fn a_key_that_is_too_short_or_anothers_is_told_as_that() {
    let (ca, scratch) = (Ca::new("root"), Scratch::new());
    let path = scratch.path();
    for (bits, words) in [
        (
            1024,
            "cert.pem: the certificate of spiffe://example.org/kv/client/7 has an RSA key of 1024 bits",
        ),
        (8192, "has an RSA key of 8192 bits; take ECDSA on P-256"),
        // It is long enough, and none of the key's.
        (2048, "key.pem: the private key"),
    ] {
        let mut issued = ca.issue(&params(&[CLIENT]));
        issued.chain_pem = ca.sign(&params(&[CLIENT]), &rsa(bits));
        ca.write_issued(path, &issued);
        assert!(says(path).contains(words), "{bits}: {}", says(path));
    }
    let mine = ca.issue(&params(&[CLIENT]));
    let key_pem = ca.issue(&params(&[CLIENT])).key_pem;
    ca.write_issued(path, &Issued { key_pem, ..mine });
    let words = "key.pem: the private key does not go with the certificate of spiffe://example.org/kv/client/7: it is another certificate's";
    assert!(says(path).contains(words), "{}", says(path));
}

#[test]
fn odd_identities_are_refused_with_what_is_odd_about_them() {
    let (ca, scratch) = (Ca::new("root"), Scratch::new());
    for (uris, words) in [
        (&["spiffe://example.org/kv%2fclient"][..], "character '%'"),
        (&["spiffe://example.org/kv/"], "segment"),
        (&["spiffe://example.org//kv"], "segment"),
        (&["spiffe://Example.org/kv"], "character 'E'"),
        (&["SPIFFE://example.org/kv"], "in lower case"),
        (&["spiffe://example.org"], "no path"),
        (&["https://example.org/kv"], "does not begin with \"spiffe://\""),
        (&["spiffe://example.org/a", "spiffe://example.org/b"], "names 2 URIs"),
        (&[], "names no URI"),
    ] {
        ca.write_issued(scratch.path(), &ca.issue(&params(uris)));
        let error = says(scratch.path());
        assert!(error.contains("cert.pem") && error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_bundle_that_would_vanish_is_refused_by_name() {
    let (ca, other, scratch) = (Ca::new("root"), Ca::new("other"), Scratch::new());
    let path = scratch.path();
    ca.write(path, CLIENT);
    let bundles = path.join("bundles");
    fs::create_dir(&bundles).unwrap();
    for (name, words) in [
        ("b.org.crt", "b.org.crt is not named DOMAIN.pem"),
        ("b.org.PEM", "b.org.PEM is not named DOMAIN.pem"),
        // It took the place of one's own roots.
        ("example.org.pem", "two bundles of example.org"),
    ] {
        fs::write(bundles.join(name), other.pem()).unwrap();
        assert!(says(path).contains(words), "{}", says(path));
        fs::remove_file(bundles.join(name)).unwrap();
    }
    let both = format!("{}{}", other.pem(), section("CERTIFICATE", &[0x30, 0]));
    fs::write(bundles.join("b.org.pem"), both).unwrap();
    let words = "b.org.pem: certificate 2 of the bundle of b.org cannot be a root";
    assert!(says(path).contains(words), "{}", says(path));
    fs::write(bundles.join("b.org.pem"), other.sign(&params(&[]), &rsa(1024))).unwrap();
    let words = "certificate 1 of the bundle of b.org has an RSA key of 1024 bits";
    assert!(says(path).contains(words), "{}", says(path));
}

#[test]
fn dates_and_purposes_of_ones_own_certificate_are_told_before_anybody_else_finds_them() {
    let (ca, scratch) = (Ca::new("root"), Scratch::new());
    ca.write(scratch.path(), CLIENT);
    let (_, credentials) = Directory::open(scratch.path()).unwrap();
    const DAY_MS: i64 = 24 * 3_600_000;
    for side in [Side::Server, Side::Client] {
        let at = |days: i64| {
            let date = WallTime::from_unix_millis(NOON_MS + days * DAY_MS);
            credentials.verify(side, date).map_err(|why| why.to_string())
        };
        assert_eq!(at(0), Ok(()));
        assert!(
            at(1).unwrap_err().contains("ended at 2026-11-24T00:00:00Z; it is 2026-11-24T12:00")
        );
        assert!(at(-1).unwrap_err().contains("is good from 2026-11-23T00:00:00Z on; it is"));
    }
    let mut params = params(&[CLIENT]);
    params.extended_key_usages.truncate(1);
    ca.write_issued(scratch.path(), &ca.issue(&params));
    let (_, credentials) = Directory::open(scratch.path()).unwrap();
    let noon = WallTime::from_unix_millis(NOON_MS);
    credentials.verify(Side::Server, noon).unwrap();
    let error = credentials.verify(Side::Client, noon).unwrap_err().to_string();
    assert!(error.contains("does not hold"), "{error}");
}

#[test]
fn files_of_any_form_are_taken_and_refused_while_it_runs_as_at_the_start() {
    use core::time::Duration;
    use rma_core::time::Instant;
    let (ca, scratch) = (Ca::new("root"), Scratch::new());
    let bundle = scratch.path().join("bundle.pem");
    ca.write(scratch.path(), CLIENT);
    let (mut directory, _) = Directory::open(scratch.path()).unwrap();
    let mut at = Instant::ZERO;
    let mut look = |directory: &mut Directory| {
        at = at + Duration::from_secs(10);
        directory.poll(at)
    };
    let both = format!("{}{}", ca.pem(), Ca::new("next").pem());
    for (what, form) in FORMS {
        fs::write(&bundle, form(&both)).unwrap();
        assert!(look(&mut directory).is_none(), "{what}");
        assert!(look(&mut directory).is_some_and(|it| it.is_ok()), "{what}");
    }
    fs::write(&bundle, utf16(&ca.pem())).unwrap();
    assert!(look(&mut directory).is_none());
    let error = look(&mut directory).unwrap().unwrap_err();
    assert!(matches!(error, DirectoryError::Pem { .. }), "{error}");
    fs::write(&bundle, Ca::new("root").pem()).unwrap();
    assert!(look(&mut directory).is_none());
    let error = look(&mut directory).unwrap().unwrap_err();
    assert!(matches!(error, DirectoryError::Unverified { .. }), "{error}");
}
