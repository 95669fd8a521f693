//! The client in `README.md`.

use std::fs;
use std::io::ErrorKind;

use super::scratch::Scratch;
use super::{blocks, text};

#[test]
fn the_python_client_prints_the_answer() {
    let page = text("README.md");
    let [client] = &blocks(&page, "python")[..] else {
        panic!("README.md has not one Python block");
    };
    let scratch = Scratch::new();
    let started = scratch.command("sessionctl").arg("agents").output().unwrap();
    assert!(started.status.success(), "{started:?}");
    fs::write(scratch.project().join("hello.py"), client.join("\n")).unwrap();
    let mut python = scratch.command("python3");
    let output = match python
        .arg("hello.py")
        .arg(scratch.home().join("run/sessiond.sock"))
        .output()
    {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: there is no python3");
            return;
        }
        output => output.unwrap(),
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("echo: Hello"),
        "{output:?}"
    );
}
