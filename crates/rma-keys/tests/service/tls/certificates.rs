//! Each bad certificate is refused with an error by name, before an octet of the protocol.

use core::time::Duration;
use std::sync::Arc;

use proptest::prelude::*;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, SanType, date_time_ymd};
use rma_keys::tls::{
    certificate::Certificate,
    credentials::{Credentials, CredentialsError},
    refused::CertificateRefused,
    trust::Trust,
};
use rustls::{
    ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection,
    client::{ResolvesClientCert, Resumption},
    pki_types::{CertificateDer, ServerName},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::ca::{CLIENT, Ca, Issued, SERVER, params, wall};

/// Sends whatever chain it is told to, good or bad.
#[derive(Debug)]
pub(crate) struct Sends(Arc<CertifiedKey>);

impl ResolvesClientCert for Sends {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Sends {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

pub(crate) fn sends(issued: &Issued) -> Arc<Sends> {
    let provider = rustls::crypto::ring::default_provider();
    let key = provider.key_provider.load_private_key(issued.key()).unwrap();
    Arc::new(Sends(Arc::new(CertifiedKey::new(issued.chain.clone(), key))))
}

/// Moves octets between the two ends until neither has any, or one fails.
fn shake(client: ClientConnection, server: ServerConnection) -> Result<[Connection; 2], Error> {
    let mut ends = [Connection::from(client), Connection::from(server)];
    for turn in 0..64 {
        let [from, to] = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut octets = Vec::new();
        while ends[from].wants_write() {
            ends[from].write_tls(&mut octets).unwrap();
        }
        let mut rest = &octets[..];
        while !rest.is_empty() {
            ends[to].read_tls(&mut rest).unwrap();
            ends[to].process_new_packets()?;
        }
    }
    assert!(!ends.iter().any(|it| it.is_handshaking()));
    Ok(ends)
}

fn connect(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Result<[Connection; 2], Error> {
    let name = ServerName::IpAddress(core::net::Ipv4Addr::LOCALHOST.into());
    shake(ClientConnection::new(client, name).unwrap(), ServerConnection::new(server).unwrap())
}

/// A trust domain with a service and a client.
struct Fixture {
    ca: Ca,
    service: Credentials,
    client: Credentials,
}

impl Fixture {
    fn new() -> Self {
        let ca = Ca::new("root");
        let (service, client) = (ca.credentials(SERVER), ca.credentials(CLIENT));
        Self { ca, service, client }
    }

    /// Returns the service's verdict on a client that sends this, so long after noon.
    fn service_takes(&self, issued: &Issued, since: Duration) -> Result<[Connection; 2], Error> {
        let date = wall(since);
        let mut client = ClientConfig::clone(&self.client.client(&date, SERVER.parse().unwrap()));
        client.client_auth_cert_resolver = sends(issued);
        // A service that has ended as well would be refused first.
        let service = self.ca.issue(&good_in(10..12, &[SERVER]));
        let service = service.credentials(self.ca.trust()).unwrap();
        connect(Arc::new(client), service.server(&date))
    }

    /// Returns the client's verdict on a service that sends this.
    fn client_takes(&self, issued: &Issued) -> Result<[Connection; 2], Error> {
        let date = wall(Duration::ZERO);
        let mut server = ServerConfig::clone(&self.service.server(&date));
        server.cert_resolver = sends(issued);
        connect(self.client.client(&date, SERVER.parse().unwrap()), Arc::new(server))
    }
}

/// Makes the parameters of a certificate that is good from the first of one month to that of
/// another.
pub(crate) fn good_in(months: core::ops::Range<u8>, uris: &[&str]) -> CertificateParams {
    let mut params = params(uris);
    let year = |month: u8| 2026 + i32::from(month > 12);
    let first = |month: u8| date_time_ymd(year(month), (month - 1) % 12 + 1, 1);
    (params.not_before, params.not_after) = (first(months.start), first(months.end));
    params
}

fn refused(result: Result<[Connection; 2], Error>) -> CertificateRefused {
    let error = result.map(drop).expect_err("it is refused");
    CertificateRefused::cause(&error).unwrap_or_else(|| panic!("{error}")).clone()
}

#[test]
fn both_ends_prove_who_they_are_and_nothing_is_resumed() {
    let fixture = Fixture::new();
    let date = wall(Duration::ZERO);
    let mut client = ClientConfig::clone(&fixture.client.client(&date, SERVER.parse().unwrap()));
    // Even where a client would like to.
    client.resumption = Resumption::in_memory_sessions(8);
    let (client, server) = (Arc::new(client), fixture.service.server(&date));
    for _ in 0..2 {
        let ends = connect(Arc::clone(&client), Arc::clone(&server)).unwrap();
        for end in &ends {
            assert_eq!(end.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
            assert_eq!(end.alpn_protocol(), Some(&b"1rma-keys/1"[..]));
            assert_eq!(end.handshake_kind(), Some(rustls::HandshakeKind::Full));
        }
        let [_, server] = &ends;
        let leaf = Certificate::read(&server.peer_certificates().unwrap()[0]).unwrap();
        assert_eq!(leaf.identity().unwrap().as_str(), CLIENT);
        assert_eq!(leaf.not_after.to_string(), "2026-11-24T00:00:00Z");
    }
}

#[test]
fn every_bad_certificate_of_a_client_is_refused_by_name() {
    let fixture = Fixture::new();
    let ca = &fixture.ca;
    let dns = SanType::DnsName("kv.example.org".try_into().unwrap());
    let mut only_dns = params(&[]);
    only_dns.subject_alt_names.push(dns.clone());
    let mut with_dns = params(&[CLIENT]);
    with_dns.subject_alt_names.push(dns);
    let mut purpose = params(&[CLIENT]);
    purpose.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    let large = {
        let mut params = params(&[CLIENT]);
        let dns = |at: usize| SanType::DnsName(format!("a{at}.example").try_into().unwrap());
        params.subject_alt_names.extend((0..1000).map(dns));
        params
    };
    let self_signed = {
        let key = KeyPair::generate().unwrap();
        let certificate = params(&[CLIENT]).self_signed(&key).unwrap();
        let (chain, chain_pem) = (vec![certificate.der().clone()], certificate.pem());
        Issued { chain, chain_pem, key_pem: key.serialize_pem() }
    };
    let garbage =
        Issued { chain: vec![CertificateDer::from(vec![0x30, 0])], ..ca.issue(&params(&[CLIENT])) };
    let long_chain = {
        let mut issued = ca.issue(&params(&[CLIENT]));
        issued.chain.extend((0..3).map(|_| ca.intermediate("middle").root()));
        issued
    };
    let day = Duration::from_secs(24 * 3600);
    let now = Duration::ZERO;
    for (issued, since, says) in [
        (ca.issue(&params(&[CLIENT])), day, "ended at 2026-11-24T00:00:00Z; it is 2026-11-24T12:"),
        (
            ca.issue(&good_in(12..13, &[CLIENT])),
            now,
            "good from 2026-12-01T00:00:00Z on; it is 2026-11-23T12:00:00Z here",
        ),
        (ca.issue(&params(&["spiffe://other.org/a"])), now, "no roots are known of the trust dom"),
        (ca.issue(&params(&[CLIENT, "spiffe://example.org/b"])), now, "names 2 URIs"),
        (ca.issue(&params(&[])), now, "names no URI, and 0 others"),
        (ca.issue(&only_dns), now, "names no URI, and 1 others"),
        (ca.issue(&params(&["https://example.org/a"])), now, "\"https://example.org/a\", which is"),
        (ca.issue(&params(&["spiffe://example.org/../a"])), now, "\"..\" at octet 21"),
        (ca.issue(&params(&["spiffe://example.org"])), now, "it has no path"),
        (ca.issue(&purpose), now, "does not hold"),
        (ca.issue(&large), now, "and may have 8192"),
        (Ca::new("root").issue(&params(&[CLIENT])), now, "does not hold"),
        (Ca::new("stranger").issue(&params(&[CLIENT])), now, "not signed by a root of its trust"),
        (self_signed, now, "not signed by a root of its trust domain"),
        (long_chain, now, "a chain of 4 certificates; at most 3"),
        (garbage, now, "the certificate cannot be read"),
    ] {
        let why = refused(fixture.service_takes(&issued, since)).to_string();
        assert!(why.contains(says), "{why} / {says}");
    }
    fixture.service_takes(&ca.issue(&with_dns), now).expect("names of DNS play no part");
}

#[test]
fn a_chain_of_a_mebibyte_ends_the_handshake() {
    let fixture = Fixture::new();
    let mut issued = fixture.ca.issue(&params(&[CLIENT]));
    let mut long = issued.chain[0].to_vec();
    long.resize(8 << 10, 0);
    issued.chain.extend((0..128).map(|_| CertificateDer::from(long.clone())));
    let error = fixture.service_takes(&issued, Duration::ZERO).map(drop).unwrap_err();
    assert!(matches!(error, Error::InvalidMessage(_)), "{error}");
}

#[test]
fn a_client_that_sends_no_certificate_is_refused() {
    #[derive(Debug)]
    struct Nothing;
    impl ResolvesClientCert for Nothing {
        fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            None
        }
        fn has_certs(&self) -> bool {
            false
        }
    }
    let fixture = Fixture::new();
    let date = wall(Duration::ZERO);
    let mut client = ClientConfig::clone(&fixture.client.client(&date, SERVER.parse().unwrap()));
    client.client_auth_cert_resolver = Arc::new(Nothing);
    let error = connect(Arc::new(client), fixture.service.server(&date)).map(drop).unwrap_err();
    assert_eq!(error, Error::NoCertificatesPresented);
}

#[test]
fn a_client_takes_the_service_that_it_expects_and_no_other() {
    let fixture = Fixture::new();
    fixture.client_takes(&fixture.ca.issue(&params(&[SERVER]))).unwrap();
    for (issued, says) in [
        (fixture.ca.issue(&params(&[CLIENT])), "kv/server was expected"),
        (Ca::new("stranger").issue(&params(&[SERVER])), "not signed by a root of its trust domain"),
        (fixture.ca.issue(&params(&[SERVER, CLIENT])), "names 2 URIs"),
        (fixture.ca.issue(&params(&["spiffe://b.org/kv/server"])), "no roots are known"),
    ] {
        let why = refused(fixture.client_takes(&issued)).to_string();
        assert!(why.contains(says), "{why} / {says}");
    }
}

#[test]
fn a_root_of_one_domain_proves_nothing_of_another() {
    let (ours, theirs) = (Ca::new("ours"), Ca::new("theirs"));
    let trust = || ours.trust().with("b.org", vec![theirs.root()]).unwrap();
    let service = ours.issue(&params(&[SERVER])).credentials(trust()).unwrap();
    let client = ours.credentials(CLIENT);
    let takes = |issued: &Issued| {
        let date = wall(Duration::ZERO);
        let mut client = ClientConfig::clone(&client.client(&date, SERVER.parse().unwrap()));
        client.client_auth_cert_resolver = sends(issued);
        connect(Arc::new(client), service.server(&date))
    };
    let foreign = ["spiffe://b.org/a"];
    takes(&ours.issue(&params(&[CLIENT]))).unwrap();
    takes(&theirs.issue(&params(&foreign))).unwrap();
    for issued in [ours.issue(&params(&foreign)), theirs.issue(&params(&[CLIENT]))] {
        let why = refused(takes(&issued));
        assert!(matches!(why, CertificateRefused::Issuer { .. }), "{why}");
    }
}

#[test]
fn a_chain_over_two_authorities_holds() {
    let fixture = Fixture::new();
    let middle = fixture.ca.intermediate("middle");
    let mut issued = middle.issue(&params(&[CLIENT]));
    issued.chain.push(middle.root());
    fixture.service_takes(&issued, Duration::ZERO).unwrap();
}

#[test]
fn credentials_that_prove_nothing_are_found_before_the_first_handshake() {
    let ca = Ca::new("root");
    let mine = ca.issue(&params(&[CLIENT]));
    let other =
        Issued { key_pem: ca.issue(&params(&[CLIENT])).key_pem, ..ca.issue(&params(&[CLIENT])) };
    let error = other.credentials(ca.trust()).unwrap_err();
    assert!(error.to_string().contains("does not go with the certificate of spiffe://"), "{error}");
    let none = Credentials::new(Vec::new(), mine.key(), ca.trust()).unwrap_err();
    assert_eq!(none, CredentialsError::ChainLength { count: 0 });
    let anonymous = ca.issue(&params(&[])).credentials(ca.trust()).unwrap_err().to_string();
    assert!(anonymous.contains("names no URI"), "{anonymous}");
    for (domain, roots, says) in [
        ("example.org", vec![], "has no certificate"),
        ("Example.org", vec![ca.root()], "no name of a trust domain"),
        ("a/b", vec![ca.root()], "no name of a trust domain"),
        ("example.org", vec![ca.root(), vec![0x30, 0].into()], "certificate 2 of the bundle"),
    ] {
        let error = Trust::none().with(domain, roots).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let shown = format!("{:?}", mine.credentials(ca.trust()).unwrap());
    let key: Vec<String> = mine.key().secret_der().iter().map(|it| format!("{it}")).collect();
    assert!(!shown.contains(&key[40..60].join(", ")), "no key is shown");
}

proptest! {
    #[test]
    fn no_octets_make_the_reader_panic(
        at in 0..600_usize,
        octet in any::<u8>(),
        cut in 0..600_usize,
        noise in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        static GOOD: std::sync::LazyLock<Vec<u8>> =
            std::sync::LazyLock::new(|| Ca::new("root").issue(&params(&[CLIENT])).chain[0].to_vec());
        let _ = Certificate::read(&noise);
        let mut changed = GOOD.clone();
        let at = at % changed.len();
        changed[at] = octet;
        if let Ok(read) = Certificate::read(&changed) {
            let _ = read.identity();
        }
        // A changed certificate may be whole with other lengths.
        prop_assert!(Certificate::read(&GOOD[..cut % GOOD.len()]).is_err());
    }
}
