//! A private network in which every address belongs to this machine.
//!
//! A test runs itself a second time under `unshare`. Inside, one route sends *all* IPv4 and IPv6 addresses, public and
//! private, to the loopback device. So the program runs with its real rules and without exceptions, and every
//! connection that it makes is seen, allowed or not.

use std::env;
use std::fs;
use std::future::Future;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

/// Environment variable that is set in the inner run of a test.
const INSIDE: &str = "POSTHASTE_TEST_WORLD";

/// Error message for a system that does not allow private networks.
const REMEDY: &str = "\
This test needs a user, network and mount namespace of its own, and will not pass without.\n\
- In a container: allow it with `--cap-add SYS_ADMIN --security-opt apparmor=unconfined` (and, if a seccomp\n  \
  profile forbids unshare, `--security-opt seccomp=unconfined`).\n\
- On Ubuntu 24.04 and later: `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`.\n\
- On Debian and others: `sudo sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000`.\n\
- Or run the tests as root.";

/// Configuration of the machine's resolver: it queries the test's name server, tries search domains, and gives up after
/// 4 seconds. Some endpoints have a shorter time limit, some a longer one.
const RESOLV_CONF: &str = "\
nameserver 127.0.0.1\n\
search evil.internal corp\n\
options ndots:5 timeout:4 attempts:1\n";

const NSSWITCH_CONF: &str = "hosts: files dns\n";

/// Public addresses of an interface of this machine, as servers listen on. All others are only routed to it: the system
/// does not list those as its own IPv6 addresses.
pub(crate) const OWN_ADDRESSES: [&str; 2] = ["45.70.0.1", "2606:4700:70::1"];

/// A name in the machine's hosts file, with a private address.
pub(crate) const NAME_IN_HOSTS: &str = "intranet.customer.com";

/// Runs a test inside a private network. `test` is the name of the test.
pub(crate) fn inside<F>(test: &str, life: impl FnOnce() -> F)
where
    F: Future<Output = ()>,
{
    if env::var_os(INSIDE).is_some() {
        prepare();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        return runtime.block_on(life());
    }
    let this = env::current_exe().expect("this test has a file");
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "--mount"])
        .arg(this)
        .args([
            "--exact",
            &format!("private_network::{test}"),
            "--nocapture",
            "--test-threads=1",
        ])
        .env(INSIDE, "1")
        .output();
    let output = output.unwrap_or_else(|error| missing("unshare", "util-linux", &error));
    let output_text = output_text(&output);
    assert!(
        !output_text.starts_with("unshare: "),
        "no network of its own could be made.\n\n{output_text}\n{REMEDY}"
    );
    let passed = output.status.success() && output_text.contains("1 passed");
    assert!(passed, "{test} did not pass inside:\n{output_text}");
}

fn missing(program: &str, package: &str, error: &io::Error) -> ! {
    panic!("`{program}` cannot be run ({error}); install it: apt-get install {package}")
}

fn output_text(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{error}{out}")
}

/// Routes every address to the loopback device, and installs the test's resolver configuration.
fn prepare() {
    run("ip", "iproute2", &["link", "set", "lo", "up"]);
    let everything = ["route", "add", "local", "default", "dev", "lo"];
    run("ip", "iproute2", &everything);
    run("ip", "iproute2", &[&["-6"], everything.as_slice()].concat());
    for address in OWN_ADDRESSES {
        run("ip", "iproute2", &["address", "add", address, "dev", "lo"]);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let hosts = format!("127.0.0.1 localhost\n10.7.7.7 {NAME_IN_HOSTS} {NAME_IN_HOSTS}.\n");
    for (name, text) in [
        ("resolv.conf", RESOLV_CONF),
        ("nsswitch.conf", NSSWITCH_CONF),
        ("hosts", &hosts),
    ] {
        let ours = directory.path().join(name);
        fs::write(&ours, text).expect("there is room");
        cover(&ours, &Path::new("/etc").join(name));
    }
    // A name cache outside the network would answer instead of the test's name server.
    let cache = Path::new("/run/nscd");
    if cache.exists() {
        cover(directory.path(), cache);
    }
}

/// Mounts a file over another one, inside this network only.
fn cover(ours: &Path, theirs: &Path) {
    let paths = [ours, theirs].map(|path| path.to_str().expect("a plain path"));
    run("mount", "mount", &[&["--bind"], paths.as_slice()].concat());
}

fn run(program: &str, package: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| missing(program, package, &error));
    let output_text = output_text(&output);
    let command = format!("{program} {}", arguments.join(" "));
    assert!(
        output.status.success(),
        "`{command}` failed inside the namespace.\n\n{output_text}\n{REMEDY}"
    );
}
