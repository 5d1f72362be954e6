//! Regions by name: an owner serves the keys of what it publishes, to whom a policy allows them;
//! clients fetch keys, and go on when these change. `cargo run --example keys --features keys`.

use core::time::Duration;
use std::{fs, path::Path, sync::Arc};

use rma_xdp::{
    Client, Host, HostConfig, OpType, Permissions, TransferOptions,
    keys::{Grants, Holder, KeyServer, KeyServerConfig, KeyedClient, OpSet, Schedule},
};

type Error = Box<dyn std::error::Error>;

const HOUR: Duration = Duration::from_secs(3600);

/// The policy of the example. What no rule allows is denied.
const POLICY: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/client"
ops = ["read", "fetch_add"]
"#;

/// The owner. Whoever has the returned service's address can ask for keys.
fn serve(directory: &Path) -> Result<KeyServer, Error> {
    let host = Arc::new(Host::open(HostConfig::udp([127, 0, 0, 36]))?);
    let index = host.register(1 << 16, Permissions::READ)?;
    let hits = host.register(4096, Permissions::ATOMIC)?;
    index.write(0, b"what clients may read")?;
    let (id, policy) = (directory.join("server"), directory.join("policy.toml"));
    fs::write(&policy, POLICY)?;
    // All of them before anybody is answered: a client that waits for an owner which starts again
    // would be denied what comes a moment later.
    let regions =
        [("kv/index", &index, Schedule::every(HOUR)), ("kv/hits", &hits, Schedule::every(HOUR))];
    let config = KeyServerConfig::new("127.0.0.1:0".parse()?, id, policy);
    Ok(KeyServer::start_with(host, &config, &regions)?)
}

fn main() -> Result<(), Error> {
    let scratch = rma_lab::Scratch::new();
    let directory = scratch.path();
    credentials(directory)?;
    let keys = serve(directory)?;

    // A client, most often on another host. The keys are bound to its host and process.
    let host = Host::open(HostConfig::udp([127, 0, 0, 1]))?;
    let holder = Holder { initiators: host.addresses(), pid: host.pid() };
    let grants = Grants::start(holder, &directory.join("client"))?;
    let service = grants.source(vec![keys.address()], "spiffe://example.org/server".parse()?)?;
    let region = |name: &str, op_type| {
        Ok::<_, Error>(grants.region(service, name.parse()?, OpSet::NONE.with(op_type))?)
    };
    let (index, hits) = (region("kv/index", OpType::Read)?, region("kv/hits", OpType::FetchAdd)?);

    // Futures, for tokio or any other executor, or for this thread.
    let client = KeyedClient::new(Client::start(host.executor(16)?)?, &grants);
    let (pool, patient) = (host.buffer_pool(4, 21)?, TransferOptions::new().timeout(10 * SECOND));
    let read = async || {
        // The first one fetches a key.
        let read = client.read(&index, 0, pool.acquire().await);
        let (result, buf) = read.timeout(10 * SECOND).await;
        result.map(|()| buf.to_vec())
    };
    assert_eq!(client.block_on(read())??, b"what clients may read");
    assert_eq!(client.block_on(client.fetch_add(&hits, 0, 1, patient))??, 0);

    // The next ones are refused under the keys that the client has, fetch others, and go on.
    keys.rotate_now("kv/index")?;
    keys.withdraw("kv/hits")?;
    assert_eq!(client.block_on(read())??, b"what clients may read");
    assert_eq!(client.block_on(client.fetch_add(&hits, 0, 1, patient))??, 1);
    println!("read and counted, before and after the keys were changed");

    // No rule allows this one: the error says which addresses the service has compared, too.
    let secret = region("secret", OpType::Read)?;
    let denied = client.block_on(client.read(&secret, 0, pool.try_acquire().expect("free")))?;
    println!("{}", denied.0.expect_err("no rule allows it"));
    Ok(())
}

const SECOND: Duration = Duration::from_secs(1);

/// Makes what `rmactl ca init` and `rmactl ca issue` make.
fn credentials(directory: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose,
        SanType,
    };
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate()?)?;
    for id in ["server", "client"] {
        let mut params = CertificateParams::default();
        let uri = format!("spiffe://example.org/{id}");
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
        let (key, directory) = (KeyPair::generate()?, directory.join(id));
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("cert.pem"), params.signed_by(&key, &root)?.pem())?;
        fs::write(directory.join("bundle.pem"), root.pem())?;
        fs::write(directory.join("key.pem"), key.serialize_pem())?;
        fs::set_permissions(directory.join("key.pem"), fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}
