{{- define "ringfaust.name" -}}
{{- printf "%s" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end }}
{{- define "ringfaust.selector" -}}
app.kubernetes.io/name: ringfaust
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "ringfaust.labels" -}}
{{ include "ringfaust.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "ringfaust.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "ringfaust.container" -}}
{{- with .Values.environmentFromSecret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/ringfaust, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.tlsSecret }}
  - {name: tls, mountPath: /etc/ringfaust-tls, readOnly: true}
  {{- end }}
{{- end }}
{{- define "ringfaust.files" -}}
worker.yaml: |
  {{- toYaml .Values.worker | nindent 2 }}
queues.yaml: |
  {{- toYaml .Values.queues | nindent 2 }}
{{- end }}
{{- /* `files`: the name of the ConfigMap with the files; `root`: what the other templates have. */ -}}
{{- define "ringfaust.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: config
    configMap:
      name: {{ .files }}
  - name: tmp
    emptyDir: {sizeLimit: 64Mi}
  {{- with .root.Values.tlsSecret }}
  - name: tls
    secret:
      secretName: {{ . }}
      defaultMode: 0440
  {{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
# A node that dies should not take a worker and its standbys.
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "ringfaust.selector" .root | nindent 8 }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
