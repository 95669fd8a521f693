//! Locates the helper programs of `tests/support/programs`. They are an example target of this package, so
//! they are not installed.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_BIN_EXE_sessiond"))
        .parent()
        .expect("a folder");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    // `cargo test` without a target builds them; `cargo test --test integration` does not.
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--locked",
            "--example",
            "test-programs",
            "--profile",
            profile,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the helper programs cannot be built");
    folder.join("examples/test-programs")
});

/// The path of the program; its first argument selects what it does.
pub(crate) fn path() -> &'static Path {
    &PROGRAMS
}

/// Creates a data folder with conversations that have these ids and this working directory. All of them refer
/// to the upstream id `shared`, if there is one.
pub(crate) fn fill_store(data: &Path, cwd: &str, shared: Option<&str>, ids: &[impl AsRef<str>]) {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data)
        .expect("a folder");
    let mut program = Command::new(path());
    program
        .arg("store-fill")
        .arg(data)
        .args([cwd, shared.unwrap_or_default()])
        .args(ids.iter().map(AsRef::as_ref));
    assert!(program.status().expect("the program runs").success());
}
